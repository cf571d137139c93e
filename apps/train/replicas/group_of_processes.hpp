// GroupOfProcesses: the group of a worker that spans processes, as one of them uses it.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "gpu/replicas/gradient_group.hpp"

namespace grapevine {

// Forwards the collectives. When and how the group ends depends on the process: lead or member.
class GroupOfProcesses : public GradientGroup {
 public:
  GroupOfProcesses(const GroupOfProcesses&) = delete;
  GroupOfProcesses& operator=(const GroupOfProcesses&) = delete;

  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) final {
    return group_->all_gather(replica, flat);
  }
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) final {
    return group_->broadcast(replica, flat);
  }
  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& bucket) final {
    used_ = true;
    return group_->all_reduce_mean(replica, bucket);
  }
  void abort() override { group_->abort(); }

 protected:
  explicit GroupOfProcesses(std::shared_ptr<GradientGroup> group) : group_(std::move(group)) {}

  // Whether a mean has been asked for: before that, other processes may have failed and not come.
  bool is_used() const { return used_; }

 private:
  const std::shared_ptr<GradientGroup> group_;
  std::atomic<bool> used_{false};
};

}  // namespace grapevine
