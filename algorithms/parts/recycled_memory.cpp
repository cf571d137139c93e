#include "algorithms/parts/recycled_memory.hpp"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

// In bytes, and the unit of blocks: slices of a vector differ by an element. The C library recycles
// smaller ones by itself.
constexpr std::int64_t kLeastRecycled = 4096;

std::int64_t whole_units(std::int64_t bytes) {
  return (bytes + kLeastRecycled - 1) / kLeastRecycled * kLeastRecycled;
}

// A large block is not spent on a small tensor.
bool block_fits(std::int64_t block, std::int64_t wanted) {
  return block >= wanted && block - wanted <= wanted / 4;
}

}  // namespace

// Blocks that nobody uses: tensors of bytes.
class RecycledMemory::Store {
 public:
  at::Tensor take(std::int64_t wanted) {
    at::Tensor block = take_free(wanted);
    if (block.defined() && block_fits(block.numel(), wanted)) return block;
    block.reset();
    return at::detail::empty_cpu({wanted}, at::kByte);
  }

  void give_back(at::Tensor block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_front(std::move(block));
  }

 private:
  // A block that fits; else the least recently used one, in whose place another one comes.
  at::Tensor take_free(std::int64_t wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return {};
    auto found = std::find_if(free_.begin(), free_.end(), [wanted](const at::Tensor& block) {
      return block_fits(block.numel(), wanted);
    });
    if (found == free_.end()) --found;
    at::Tensor block = std::move(*found);
    free_.erase(found);
    return block;
  }

  std::mutex mutex_;
  std::deque<at::Tensor> free_;  // guarded by mutex_; the most recently used first
};

// The memory of one tensor.
class RecycledMemory::Block final : public TensorMemory {
 public:
  Block(std::shared_ptr<Store> store, at::Tensor bytes)
      : store_(std::move(store)), bytes_(std::move(bytes)) {}
  ~Block() override { store_->give_back(std::move(bytes_)); }
  bool exclusive() const override { return true; }

 private:
  const std::shared_ptr<Store> store_;
  at::Tensor bytes_;
};

RecycledMemory::RecycledMemory() : store_(std::make_shared<Store>()) {}

at::Tensor RecycledMemory::take(const at::Tensor& like) const {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  if (!like.is_cpu() || bytes < kLeastRecycled || has_send_memory())
    return empty_to_send(like.sizes(), like.scalar_type(), like.device());
  at::Tensor block = store_->take(whole_units(bytes));
  void* const data = block.data_ptr();
  return tensor_on(data, like.sizes(), like.scalar_type(),
                   std::make_unique<Block>(store_, std::move(block)));
}

at::Tensor RecycledMemory::copy_of(const at::Tensor& t) const {
  at::Tensor copy = take(t);
  copy.copy_(t);
  return copy;
}

}  // namespace grapevine
