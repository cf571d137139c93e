#include "algorithms/parts/buffer_pool.hpp"

#include "messages/tensor_memory.hpp"

namespace grapevine {

at::Tensor BufferPool::take(std::int64_t numel) {
  for (auto it = retired_.begin(); it != retired_.end(); ++it) {
    if (!it->sole_owner() || it->numel() != numel) continue;
    at::Tensor buffer = std::move(*it).thaw();
    retired_.erase(it);
    return buffer;
  }
  return empty_to_send({numel}, at::kFloat);  // shares of it are sent
}

void BufferPool::give(FrozenTensor retired) {
  if (!retired.defined()) return;
  if (retired_.size() == kCapacity) retired_.erase(retired_.begin());
  retired_.push_back(std::move(retired));
}

}  // namespace grapevine
