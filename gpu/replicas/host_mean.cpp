#include "gpu/replicas/host_mean.hpp"

#include <utility>

namespace grapevine {

void HostMean::set(Transfers::HostMemory memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_ = std::move(memory);
}

Transfers::HostMemory HostMean::get() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return memory_;
}

at::Tensor HostMean::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(memory_, {}).flat;
}

}  // namespace grapevine
