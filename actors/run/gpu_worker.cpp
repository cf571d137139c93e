#include "actors/run/gpu_worker.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "messages/text/exception_line.hpp"

namespace grapevine {

namespace {

// A Compute does not throw; one that does ends the run with its text.
Gradient compute(Compute& compute, GradientRequest request) {
  const Step step = request.step;
  try {
    return compute.gradient(std::move(request));
  } catch (...) {
    Gradient failed;
    failed.step = step;
    failed.error = exception_line(std::current_exception());
    return failed;
  }
}

}  // namespace

WorkerActor::behavior_type gpu_worker(WorkerActor::stateful_pointer<WorkerState> self,
                                      WorkerConfig config, PeerActor peer) {
  self->state.config = std::move(config);
  return {[self, peer](GradientRequest& request) {
    const WorkerConfig& worker = self->state.config;
    if (at::get_num_threads() != worker.threads) at::set_num_threads(worker.threads);
    worker.activity->store(WorkerActivity::computing);
    const Step step = request.step;
    Gradient gradient = compute(*worker.compute, std::move(request));
    if (!worker.measures) {
      gradient.compute_seconds = to_seconds(worker.delay.of_compute(worker.rank, step));
      gradient.data_seconds = 0;
    }
    const Duration for_data = worker.delay.of_data(worker.rank, step);
    gradient.data_seconds += to_seconds(for_data);
    const auto now = std::chrono::duration_cast<Duration>(self->clock().now().time_since_epoch());
    // A gradient that was asked for before, and that nobody may want any more, is done first.
    Duration& free_at = self->state.free_at;
    free_at = std::max(free_at, now);
    free_at +=
        worker.delay.with_pauses(worker.rank, free_at - Duration(worker.run_start_ns),
                                 for_data + worker.delay(worker.rank, step, gradient.length));
    const Duration late = free_at - now;
    // A straggler is idle, not busy: other workers keep the cores.
    worker.activity->store(late > Duration::zero() ? WorkerActivity::delayed
                                                   : WorkerActivity::idle);
    if (late > Duration::zero())
      self->delayed_send(peer, late, std::move(gradient));
    else
      self->send(peer, std::move(gradient));
  }};
}

}  // namespace grapevine
