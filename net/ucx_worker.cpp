#ifdef GRAPEVINE_UCX
#include "net/ucx_worker.hpp"

#include "messages/codec.hpp"
#include "net/ucx_wire.hpp"

namespace grapevine::ucx {
namespace {

Error refused(const std::string& what, ucs_status_t status, const UcxOptions& options) {
  const auto named = [](const std::string& value) { return value.empty() ? "all" : value; };
  return {Errc::io, "UCX cannot " + what + ": " + ucs_status_string(status) + " (devices: " +
                        named(options.net_devices) + ", transports: " + named(options.tls) +
                        "; ucx_info -d lists what there is)"};
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

}  // namespace

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
  ucp_config_t* read = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &read);
  if (status != UCS_OK) return refused("read its configuration", status, options);
  const std::unique_ptr<ucp_config_t, ConfigRelease> config(read);
  if (!options.net_devices.empty())
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
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER | UCP_WORKER_ATTR_FIELD_ADDRESS;
  const ucs_status_t status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK)
    return Error{Errc::io, std::string("UCX cannot tell its address: ") + ucs_status_string(status)};
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  if (attributes.max_am_header < sizeof(Prefix) + kMaxHeaderBytes)
    return Error{Errc::io, "UCX's active messages carry headers of " +
                               std::to_string(attributes.max_am_header) +
                               " bytes only: choose other transports"};
  return {};
}

}  // namespace grapevine::ucx
#endif
