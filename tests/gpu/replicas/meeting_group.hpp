// MeetingGroup: a group of replicas in one process that sums on the host, for tests.
#pragma once
#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/replicas/gradient_group.hpp"
#include "gpu/replicas/replica_barrier.hpp"

namespace grapevine {

constexpr Duration kMeetingTimeout = std::chrono::seconds(30);

// Gathers and sums on the "devices": waits for all replicas, as a collective does.
class MeetingGroup final : public GradientGroup {
 public:
  explicit MeetingGroup(std::size_t size)
      : barrier_(size), slices_(size), gradients_(size), calls_(size), sizes_(size) {}

  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    calls_[replica] += 'g';
    slices_[replica] = flat;
    if (auto here = barrier_.wait(kMeetingTimeout); !here) return here;
    const std::int64_t slice = flat.numel() / static_cast<std::int64_t>(slices_.size());
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::int64_t begin = static_cast<std::int64_t>(i) * slice;
      if (i != replica) flat.narrow(0, begin, slice).copy_(slices_[i].narrow(0, begin, slice));
    }
    return barrier_.wait(kMeetingTimeout);
  }
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    calls_[replica] += 'b';
    slices_[replica] = flat;
    if (auto here = barrier_.wait(kMeetingTimeout); !here) return here;
    if (replica != 0) flat.copy_(slices_[0]);
    return barrier_.wait(kMeetingTimeout);
  }
  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& gradient) override {
    calls_[replica] += 'r';
    sizes_[replica].push_back(gradient.numel());
    if (on_reduce) on_reduce(replica);
    gradients_[replica] = gradient;
    if (auto here = barrier_.wait(kMeetingTimeout); !here) return here;
    at::Tensor sum = gradients_[0].clone();
    for (std::size_t i = 1; i < gradients_.size(); ++i) sum.add_(gradients_[i]);
    sum.div_(static_cast<double>(gradients_.size()));
    if (auto summed = barrier_.wait(kMeetingTimeout); !summed) return summed;
    gradient.copy_(sum);
    if (replica == 0) ++passes_;
    return barrier_.wait(kMeetingTimeout);
  }
  void abort() override {
    aborted_ = true;
    barrier_.end();
  }
  // All-reductions.
  int passes() const { return passes_; }
  bool aborted() const { return aborted_; }
  // 'g' for all_gather(), 'b' for broadcast(), 'r' for all_reduce_mean(). Between steps.
  const std::string& calls(std::size_t replica) const { return calls_[replica]; }
  // Elements of each all_reduce_mean(), likewise.
  const std::vector<std::int64_t>& sizes(std::size_t replica) const { return sizes_[replica]; }

  std::function<void(std::size_t replica)>
      on_reduce;  // at the begin of each; before the first step

 private:
  ReplicaBarrier barrier_;
  std::vector<at::Tensor> slices_;
  std::vector<at::Tensor> gradients_;
  // By replica, which alone writes its own.
  std::vector<std::string> calls_;
  std::vector<std::vector<std::int64_t>> sizes_;
  std::atomic<int> passes_{0};
  std::atomic<bool> aborted_{false};
};

}  // namespace grapevine
