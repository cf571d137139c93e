#include "algorithms/parts/buffer_pool.hpp"

#include <algorithm>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine {

at::Tensor BufferPool::take(const FrozenTensor& like) {
  const auto serves = [&like](const FrozenTensor& t) {
    return t.sole_owner() && t.numel() == like.numel() && t.device() == like.device();
  };
  auto found = std::find_if(retired_.begin(), retired_.end(), [&serves](const FrozenTensor& t) {
    return serves(t) && is_sent_in_place(t);
  });
  if (found == retired_.end()) {
    at::Tensor fresh = empty_successor(like, {like.numel()});
    found = std::find_if(retired_.begin(), retired_.end(), serves);
    const bool no_send_memory_is_left = memory_of(fresh) == nullptr;
    if (found == retired_.end() || !no_send_memory_is_left) return fresh;
  }
  at::Tensor buffer = std::move(*found).thaw();
  retired_.erase(found);
  return buffer;
}

at::Tensor BufferPool::copy_of(const at::Tensor& values, const FrozenTensor& like) {
  at::Tensor copy = take(like);
  kernels::copy(copy, values);
  return copy;
}

void BufferPool::give(FrozenTensor retired) {
  if (!retired.defined() || !retired.device().is_cpu()) return;
  const TensorMemory* const memory = memory_of(retired.read());
  if (memory != nullptr && !memory->exclusive()) return;  // another process keeps it: never free
  const auto is_same = [&retired](const FrozenTensor& t) { return t.raw() == retired.raw(); };
  if (std::any_of(retired_.begin(), retired_.end(), is_same)) return;
  if (retired_.size() >= capacity_) retired_.erase(retired_.begin());
  retired_.push_back(std::move(retired));
}

}  // namespace grapevine
