#include "algorithms/parts/buffer_pool.hpp"

#include "messages/tensor_memory.hpp"

namespace grapevine {

at::Tensor BufferPool::take(const FrozenTensor& like) {
  for (auto it = retired_.begin(); it != retired_.end(); ++it) {
    if (!it->sole_owner() || it->numel() != like.numel() || it->device() != like.device()) continue;
    at::Tensor buffer = std::move(*it).thaw();
    retired_.erase(it);
    return buffer;
  }
  return empty_successor(like, {like.numel()});
}

void BufferPool::give(FrozenTensor retired) {
  if (!retired.defined() || !retired.device().is_cpu()) return;
  if (retired_.size() >= capacity_) retired_.erase(retired_.begin());
  retired_.push_back(std::move(retired));
}

}  // namespace grapevine
