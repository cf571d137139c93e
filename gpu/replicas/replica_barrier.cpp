#include "gpu/replicas/replica_barrier.hpp"

#include <string>

namespace grapevine {

Expected<void> ReplicaBarrier::wait(Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::size_t pass = passes_;
  if (!ended_ && ++here_ == size_) {
    here_ = 0;
    ++passes_;
    changed_.notify_all();
    return {};
  }
  const bool in_time = changed_.wait_for(lock, timeout, [&] { return passes_ != pass || ended_; });
  if (passes_ != pass) return {};
  if (!in_time) {
    ended_ = true;
    changed_.notify_all();
    return Error{Errc::timeout, std::to_string(here_) + " of " + std::to_string(size_) +
                                    " replicas arrived within " +
                                    std::to_string(static_cast<int>(to_seconds(timeout))) + " s"};
  }
  return Error{Errc::peer_down, "another replica of this worker has failed"};
}

void ReplicaBarrier::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace grapevine
