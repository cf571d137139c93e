#ifdef GRAPEVINE_UCX
#include "net/ucx/ucx_worker.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include <spdlog/spdlog.h>
#include <ucs/debug/log_def.h>

#include "messages/codec.hpp"
#include "net/ucx/ucx_wire.hpp"

namespace grapevine::ucx {
namespace {

Error refused(const std::string& what, ucs_status_t status, const UcxOptions& options) {
  const auto named = [](const std::string& value) { return value.empty() ? "all" : value; };
  return {Errc::io, "UCX cannot " + what + ": " + ucs_status_string(status) +
                        " (devices: " + named(options.net_devices) +
                        ", transports: " + named(options.tls) + "; ucx_info -d lists the devices)"};
}

// Whether UCX may use shared memory: by the option, else by the environment, else it may.
bool admits_shared_memory(std::string tls) {
  if (tls.empty())
    if (const char* set = std::getenv("UCX_TLS")) tls = set;  // NOLINT(concurrency-mt-unsafe)
  if (tls.empty() || tls[0] == '^') return true;
  const std::array<const char*, 6> shared{"all", "sm", "shm", "mm", "posix", "sysv"};
  return std::any_of(shared.begin(), shared.end(),
                     [&](const char* name) { return tls.find(name) != std::string::npos; });
}

// Endpoints that report the death of their peer use shared memory only where its transports promise
// to notice, and by default they do not. Endpoints that do not report it are no choice: UCX 1.13
// aborts this process when a peer dies while its memory is read. Endpoints without traffic are
// checked every KEEPALIVE_INTERVAL.
ucs_status_t watch_peers(ucp_config_t* config, const UcxOptions& options) {
  const ucs_status_t status = ucp_config_modify(config, "KEEPALIVE_INTERVAL", "1s");
  if (status != UCS_OK || !admits_shared_memory(options.tls)) return status;
  // Where a UCX does not know it, shared memory stays unused: slower, not wrong.
  ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
  return UCS_OK;
}

spdlog::level::level_enum level_of(ucs_log_level_t level) {
  if (level <= UCS_LOG_LEVEL_ERROR) return spdlog::level::err;
  if (level == UCS_LOG_LEVEL_WARN) return spdlog::level::warn;
  const bool visible = level == UCS_LOG_LEVEL_INFO || level == UCS_LOG_LEVEL_PRINT;
  return visible ? spdlog::level::info : spdlog::level::debug;
}

ucs_log_func_rc_t log_line(const char*, unsigned, const char*, ucs_log_level_t level,
                           const ucs_log_component_config_t*, const char* format, va_list values) {
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), format, values);
  spdlog::log(level_of(level), "UCX: {}", text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

// UCX writes its log to stdout, which is for results, and has opened it before main() begins.
// The user's choice of a destination is kept. UCX logs until after main(), when our logger has
// ended; a handler registered after the logger was made runs before the end of the logger.
void redirect_log() {
  static const bool done = [] {
    if (std::getenv("UCX_LOG_FILE") != nullptr) return true;
    spdlog::default_logger_raw();
    ucs_log_push_handler(log_line);
    std::atexit([] { ucs_log_pop_handler(); });
    return true;
  }();
  (void)done;
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

}  // namespace

std::string say_memory(std::uint64_t memory_types) {
  if ((memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) == 0)
    return "built without CUDA, or may not use it (UCX_TLS): tensors of a GPU are sent from pinned "
           "host memory";
  return "built with CUDA: it can send tensors from a GPU's memory and receive them there";
}

Expected<std::unique_ptr<Worker>> Worker::make(const UcxOptions& options) {
  std::unique_ptr<Worker> worker(new Worker());
  const Expected<void> opened = worker->open(options);
  if (!opened) return opened.error();
  return worker;
}

Worker::~Worker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Expected<void> Worker::open(const UcxOptions& options) {
  redirect_log();
  ucp_config_t* read = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &read);
  if (status != UCS_OK) return refused("read its configuration", status, options);
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(read);
  status = watch_peers(config.get(), options);
  if (status == UCS_OK && !options.net_devices.empty())
    status = ucp_config_modify(config.get(), "NET_DEVICES", options.net_devices.c_str());
  if (status == UCS_OK && !options.tls.empty())
    status = ucp_config_modify(config.get(), "TLS", options.tls.c_str());
  if (status != UCS_OK) return refused("take these options", status, options);

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucp_init(&params, config.get(), &context_);
  if (status != UCS_OK) return refused("start", status, options);

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status == UCS_OK) status = ucp_worker_get_efd(worker_, &descriptor_);
  if (status != UCS_OK) return refused("open a worker", status, options);
  return query();
}

Expected<void> Worker::query() {
  ucp_context_attr_t context{};
  context.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context_, &context) == UCS_OK) memory_types_ = context.memory_types;
  spdlog::info("ucx: {}", say_memory(memory_types_));
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  const ucs_status_t status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK || attributes.max_am_header < sizeof(Prefix) + kMaxHeaderBytes)
    return Error{Errc::io, "UCX's active messages carry headers of " +
                               std::to_string(attributes.max_am_header) +
                               " bytes only: choose other transports"};
  Expected<std::string> any = query_address(0);
  if (!any) return any.error();
  Expected<std::string> network = query_address(UCP_WORKER_ADDRESS_FLAG_NET_ONLY);
  if (!network) return network.error();
  address_ = *std::move(any);
  network_address_ = *std::move(network);
  return {};
}

Expected<std::string> Worker::query_address(unsigned flags) {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = flags;
  const ucs_status_t status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK)
    return Error{Errc::io,
                 std::string("UCX cannot give its address: ") + ucs_status_string(status)};
  std::string bytes(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  return bytes;
}

}  // namespace grapevine::ucx
#endif
