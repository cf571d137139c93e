#include "actors/run/gpu_worker.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "actors/clock_time.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {

namespace {

// A Compute does not throw; one that does ends the run with its text.
Gradient compute(Compute& compute, GradientRequest request, const GivePart& give) {
  const Step step = request.step;
  try {
    if (request.parts) return compute.gradient_in_parts(std::move(request), give);
    return compute.gradient(std::move(request));
  } catch (...) {
    Gradient failed;
    failed.step = step;
    failed.error = exception_line(std::current_exception());
    return failed;
  }
}

// In virtual time, which does not pass while a gradient is computed: the share of that time after
// which its elements from `begin` of `d` on are complete. A forward pass takes a third, and the
// backward pass as long for each parameter, from the last one to the first.
double share_until(std::int64_t begin, std::int64_t d) {
  return (1 + 2 * static_cast<double>(d - begin) / static_cast<double>(d)) / 3;
}

using Worker = WorkerActor::stateful_pointer<WorkerState>;

template <class Message>
void send_after(Worker self, const PeerActor& peer, Duration late, Message message) {
  if (late > Duration::zero())
    self->delayed_send(peer, late, std::move(message));
  else
    self->send(peer, std::move(message));
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
    std::vector<GradientPart> parts;  // of virtual time; else they leave at once
    Gradient gradient = compute(*worker.compute, std::move(request), [&](GradientPart part) {
      if (worker.measures) return self->send(peer, std::move(part));
      parts.push_back(std::move(part));
    });
    const Duration computing = worker.delay.of_compute(worker.rank, step);
    if (!worker.measures) {
      gradient.compute_seconds = to_seconds(computing);
      gradient.data_seconds = 0;
      gradient.device_seconds = std::numeric_limits<double>::quiet_NaN();
    }
    const Duration for_data = worker.delay.of_data(worker.rank, step);
    gradient.data_seconds += to_seconds(for_data);
    const Timestamp now = clock_time(self->clock());
    // A gradient that was asked for before, and that nobody may want any more, is done first.
    Duration& free_at = self->state.free_at;
    free_at = std::max(free_at, now);
    const auto late_by = [&](Duration work) {
      return free_at - now +
             worker.delay.with_pauses(worker.rank, free_at - Duration(worker.run_start_ns), work);
    };
    const std::int64_t d = parts.empty() ? 0 : parts.front().begin + parts.front().value.numel();
    for (GradientPart& part : parts) {
      const double share = share_until(part.begin, d);
      send_after(self, peer, late_by(for_data + from_seconds(share * to_seconds(computing))),
                 std::move(part));
    }
    const Duration late = late_by(for_data + worker.delay(worker.rank, step, gradient.length));
    free_at = now + late;
    // A straggler is idle, not busy: other workers keep the cores.
    worker.activity->store(late > Duration::zero() ? WorkerActivity::delayed
                                                   : WorkerActivity::idle);
    send_after(self, peer, late, std::move(gradient));
  }};
}

}  // namespace grapevine
