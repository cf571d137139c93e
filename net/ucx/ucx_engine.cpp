#ifdef GRAPEVINE_UCX
#include "net/ucx/ucx_engine.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>
#include <random>
#include <utility>

#include "net/loss_reason.hpp"
#include "net/ucx/ucx_engine_parts.hpp"

namespace grapevine::ucx {
namespace {

constexpr int kProgressRounds = 64;             // before other work
constexpr int kProgressRoundsAtMost = 1 << 12;  // for messages that have arrived
constexpr int kVainPolls = 16;                  // about a microsecond: then the caller may yield

std::uint64_t random_token() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

// ---- Life

Expected<std::unique_ptr<Engine>> Engine::make(const UcxOptions& options) {
  Expected<std::unique_ptr<Worker>> worker = Worker::make(options);
  if (!worker) return worker.error();
  std::unique_ptr<Engine> engine(new Engine(*std::move(worker), options));
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = on_am;
  handler.arg = engine.get();
  const ucs_status_t status = ucp_worker_set_am_recv_handler(engine->worker_->handle(), &handler);
  if (status != UCS_OK)
    return Error{Errc::io,
                 std::string("UCX refuses active messages: ") + ucs_status_string(status)};
  return engine;
}

Engine::Engine(std::unique_ptr<Worker> worker, const UcxOptions& options)
    : token_(random_token()), pool_(options.keep_receive_bytes), worker_(std::move(worker)) {}

Engine::~Engine() {
  for (Send& s : sends_)
    if (s.link->same_host) left_for_peers().add(s.link->peer.pid, std::move(s.payload));
  // UCX aborts where a worker ends before its requests. A leaked worker calls nothing of ours,
  // because no thread progresses it.
  if (quiet()) return;
  spdlog::warn("ucx: {} messages to and {} from processes that do not answer are abandoned",
               sends_.size(), receives_.size());
  worker_.release();  // NOLINT(bugprone-unused-return-value)
  keep_begun_receives();
}

// Hardware needs no progress: a network device, or a copy of a GPU, may still write their memory.
void Engine::keep_begun_receives() {
  static std::mutex mutex;
  static auto* const kept = new std::list<Receive>();  // the end of the process frees it
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto r = receives_.begin(); r != receives_.end();) {
    const auto next = std::next(r);
    if (r->descriptor == nullptr) kept->splice(kept->end(), receives_, r);
    r = next;
  }
}

std::string Engine::address() const {
  return pack_address({token_, static_cast<std::int32_t>(::getpid()), worker_->address(),
                       worker_->network_address()});
}

bool Engine::reaches(const DeviceMemory& memory) const {
  return (worker_->memory_types() & UCS_BIT(memory_type(memory.kind()))) != 0;
}

// The kind of memory is given to UCX, which may query the driver before the driver knows the
// address.
void Engine::set_memory(ucp_request_param_t& param) const {
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = memory_type(device_memory_->kind());
}

// ---- Loss

void Engine::on_endpoint_error(void* arg, ucp_ep_h, ucs_status_t status) {
  Link& link = *static_cast<Link*>(arg);
  link.engine->guard(&link, [&] { link.engine->fail(link, ucs_status_string(status)); });
}

void Engine::fail_overwhelmed() {
  overwhelmed_ = false;  // first: a link may fail once more
  for (const auto& link : links_)
    if (link != nullptr && std::exchange(link->overwhelmed, false))
      fail(*link, std::string(kErrorHere) + "no memory for a message");
}

void Engine::fail(Link& link, const std::string& why) {
  if (link.open) {
    // First the code that may throw: a callback that cannot continue fails the link once more.
    std::string kept = why;
    events_.emplace_back(ProcessLeft{link.process, why});
    link.open = false;
    link.lost = any_lost_ = true;
    link.why = std::move(kept);
    // A process that has received our goodbye may end before its answer is read.
    if (!saying_goodbye_) spdlog::warn("ucx: lost {}: {}", link.name(), why);
  }
  abandon(link);
}

// The loss follows the messages that have arrived. The process may live and send on. Payloads that
// it has only announced are still in its memory, and are dropped.
void Engine::lose(std::int32_t process) {
  for (int rounds = 0, vain = 0; rounds < kProgressRoundsAtMost && vain < kVainPolls; ++rounds)
    vain = ucp_worker_progress(worker_->handle()) == 0 ? vain + 1 : 0;
  if (links_[static_cast<std::size_t>(process)] == nullptr) {  // it has no link here
    events_.emplace_back(ProcessLeft{process, ""});
    return;
  }
  Link& link = *links_[static_cast<std::size_t>(process)];
  if (link.open) events_.emplace_back(ProcessLeft{process, ""});
  give_up(link);
}

void Engine::give_up(Link& link) {
  if (link.open) {
    link.open = false;
    link.lost = any_lost_ = true;
    link.why = "it was reported dead";
  }
  abandon(link);
}

// Requests in flight end with the endpoint.
void Engine::abandon(Link& link) {
  link.waiting.clear();
  for (Receive* r : std::exchange(link.announced, {})) {
    ucp_am_data_release(worker_->handle(), r->descriptor);
    receives_.erase(r->self);
    --announced_;
  }
  for (Receive& r : receives_)
    if (r.link == &link) r.link = nullptr;
  if (link.endpoint == nullptr || link.closing) return;
  broken_.push_back(&link);
  link.closing = true;
}

void Engine::close_broken() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (Link* link : std::exchange(broken_, {})) {
    void* request = ucp_ep_close_nbx(std::exchange(link->endpoint, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

// ---- Progress and the end

bool Engine::progress() {
  int rounds = 0;
  for (int vain = 0; rounds < kProgressRounds && vain < kVainPolls;) {
    if (ucp_worker_progress(worker_->handle()) == 0) {
      if (rounds > 0) break;
      ++vain;
      continue;
    }
    if (announced_ > 0) begin_announced();
    ++rounds;
  }
  if (announced_ > 0) begin_announced();
  if (overwhelmed_) fail_overwhelmed();
  if (!to_answer_.empty()) answer_hellos();
  if (greets_ && !saying_goodbye_) repeat_hellos();
  if (!broken_.empty()) close_broken();
  if (any_lost_) release_unfetchable();
  const auto is_done = [](void* request) {
    const bool done = ucp_request_check_status(request) != UCS_INPROGRESS;
    if (done) ucp_request_free(request);
    return done;
  };
  closing_.erase(std::remove_if(closing_.begin(), closing_.end(), is_done), closing_.end());
  return rounds > 0 || !events_.empty();
}

void Engine::say_goodbye() {
  answer_hellos();
  saying_goodbye_ = true;
  for (const auto& link : links_)
    if (link != nullptr && link->open) send_bare(*link, Kind::goodbye);
}

bool Engine::goodbyes_seen() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return link == nullptr || !link->open || !link->hello_received || link->saw_all;
  });
}

void Engine::close_endpoints() {
  const ucp_request_param_t param{};
  for (const auto& link : links_) {
    if (link == nullptr || link->endpoint == nullptr || link->closing) continue;
    if (link->open && !link->saw_all) {
      give_up(*link);
      continue;
    }
    link->closing = true;
    void* request = ucp_ep_close_nbx(std::exchange(link->endpoint, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

bool Engine::quiet() const {
  return broken_.empty() && closing_.empty() && sends_.empty() && receives_.empty();
}

}  // namespace grapevine::ucx
#endif
