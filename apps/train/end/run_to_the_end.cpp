#include "apps/train/end/run_to_the_end.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

namespace grapevine {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(100);
constexpr Duration kShutDownTimeout = std::chrono::seconds(10);
// A run that has lost a process ends at once, without the steps that are under way, but with the
// checkpoint.
constexpr Duration kLostTimeout = std::chrono::milliseconds(300);
constexpr Duration kWritingTimeout = std::chrono::seconds(5);
// The transports have a flush_limit of 60 s.
constexpr Runtime::CloseTimeouts kCloseTimeouts{std::chrono::seconds(20), std::chrono::seconds(70)};

// `timeout`: of the run, with its steps.
Duration shut_down_timeout(const RunResult& result, Duration timeout) {
  if (!result.error) return kShutDownTimeout;
  // A step has already taken longer than the user allows.
  if (result.error->code == Errc::timeout) return std::min(kShutDownTimeout, timeout);
  if (result.error->code != Errc::peer_down) return kShutDownTimeout;
  return result.writing ? kWritingTimeout : kLostTimeout;
}

// False: a thread does not return.
bool ends(Runtime& runtime, Duration timeout) {
  if (!runtime.shut_down(timeout)) return false;
  const Expected<void> closed = runtime.close(kCloseTimeouts);
  if (!closed) spdlog::warn("{}: this process ends without it", closed.error().message);
  return closed.ok();
}

}  // namespace

RunResult run_to_the_end(RunConfig config, const std::shared_ptr<RunEnd>& end,
                         const std::shared_ptr<RunReport>& files, SignalFlags& signals,
                         bool* requeue, Console& console) {
  const auto stop_requested = [&signals, control = config.control] {
    return signals.stop_requested() || (control && control->stop_requested());
  };
  // Ends the rendezvous of processes that still connect; its first reason counts.
  if (config.cluster)
    config.cluster->cancelled = [stop_requested, end] {
      return stop_requested() || end->has_ended();
    };
  const Duration timeout = config.timeout;
  auto runtime = std::make_unique<Runtime>(std::move(config), end, files);
  bool stopping = false;
  for (;;) {
    if (auto result = end->wait_for(kPollInterval)) {
      if (!ends(*runtime, shut_down_timeout(*result, timeout))) {
        // The objects of a thread that does not return must stay.
        console.thread_left_behind = true;
        static_cast<void>(runtime.release());
      }
      return std::move(*result);
    }
    const bool asked = signals.take_checkpoint_request();
    if (asked && requeue != nullptr) *requeue = true;
    const bool stop = stop_requested() || (asked && requeue != nullptr) || end->wants_stop();
    if (stop && !stopping) {
      stopping = true;
      runtime->request_stop();
    } else if (asked && requeue == nullptr) {
      runtime->request_checkpoint();
    }
  }
}

}  // namespace grapevine
