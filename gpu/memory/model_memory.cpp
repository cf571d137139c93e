#include "gpu/memory/model_memory.hpp"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

// Of one tensor.
class ModelBlock final : public TensorMemory {
 public:
  ModelBlock(std::shared_ptr<ModelMemory> home, at::Tensor memory, bool pinned)
      : home_(std::move(home)), memory_(std::move(memory)), pinned_(pinned) {}
  bool exclusive() const override { return true; }
  at::Tensor allocate_like(at::IntArrayRef sizes, at::ScalarType dtype) const override {
    return home_->empty(sizes, dtype);
  }
  at::Tensor adopt(at::Tensor t) const override { return home_->adopt(std::move(t)); }
  bool is_pinned() const { return pinned_; }

 private:
  const std::shared_ptr<ModelMemory> home_;  // ends after memory_, which returns to its pool
  const at::Tensor memory_;
  const bool pinned_;
};

const ModelBlock* block_of(const at::Tensor& t) {
  return dynamic_cast<const ModelBlock*>(memory_of(t));
}

}  // namespace

std::shared_ptr<ModelMemory> ModelMemory::make(StagingPool::Allocate allocate,
                                               std::size_t limit_bytes) {
  return std::shared_ptr<ModelMemory>(new ModelMemory(std::move(allocate), limit_bytes));
}

at::Tensor ModelMemory::as_block(at::Tensor memory, bool pinned) {
  void* const data = memory.data_ptr();
  const std::vector<std::int64_t> sizes = memory.sizes().vec();
  const at::ScalarType dtype = memory.scalar_type();
  return tensor_on(data, sizes, dtype,
                   std::make_unique<ModelBlock>(shared_from_this(), std::move(memory), pinned));
}

at::Tensor ModelMemory::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  if (c10::multiply_integers(sizes) == 0) return at::empty(sizes, at::TensorOptions(dtype));
  at::Tensor memory = pool_.try_take(sizes, dtype);
  const bool pinned = memory.defined();
  if (!pinned) memory = at::empty(sizes, at::TensorOptions(dtype));
  return as_block(std::move(memory), pinned);
}

// No other handle on `t` may write what is taken over: freeze() copies it where there is one.
at::Tensor ModelMemory::adopt(at::Tensor t) {
  if (t.numel() == 0) return t;
  at::Tensor pinned = pool_.try_take(t.sizes(), t.scalar_type());
  if (pinned.defined()) return as_block(pinned.copy_(t), true);
  return as_block(FrozenTensor::freeze(std::move(t)).thaw(), false);
}

FrozenTensor ModelMemory::adopt(FrozenTensor t) {
  if (!t.defined() || !t.device().is_cpu() || block_of(t.read()) != nullptr || has_send_memory())
    return t;
  // A tensor that others read is not taken over: it is copied once, into either memory.
  if (!t.sole_owner()) return copy_of(t.read());
  return FrozenTensor::freeze(adopt(std::move(t).thaw()));
}

FrozenTensor ModelMemory::copy_of(const at::Tensor& t) {
  if (has_send_memory()) return FrozenTensor::copy_of(t);
  at::Tensor copy = empty(t.sizes(), t.scalar_type());
  copy.copy_(t);
  return FrozenTensor::freeze(std::move(copy));
}

bool is_pinned_model(const at::Tensor& t) {
  const ModelBlock* const block = block_of(t);
  return block != nullptr && block->is_pinned();
}

}  // namespace grapevine
