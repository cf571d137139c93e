#include "algorithms/parts/recycled_memory.hpp"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <utility>

#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kLeastRecycled = 4096;  // bytes; the C library recycles smaller ones itself
constexpr std::int64_t kUnit = 4096;           // of blocks: slices of a vector differ by an element

std::int64_t whole_units(std::int64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// A large block is not spent on a small tensor.
bool block_fits(std::int64_t block, std::int64_t wanted) {
  return block >= wanted && block - wanted <= wanted / 4;
}

}  // namespace

// Blocks that nobody uses: tensors of bytes.
class RecycledMemory::Store {
 public:
  // A block lies in a list of its own while it is used: to give it back allocates nothing.
  using One = std::list<at::Tensor>;

  One take(std::int64_t wanted) {
    One one = take_free(wanted);
    if (!one.empty() && block_fits(one.front().numel(), wanted)) return one;
    one.clear();
    one.push_back(at::detail::empty_cpu({wanted}, at::kByte));
    return one;
  }

  void give_back(One one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.splice(free_.begin(), one);
  }

 private:
  // A block that fits; else the least recently used one, in whose place another one comes.
  One take_free(std::int64_t wanted) {
    One one;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return one;
    auto found = std::find_if(free_.begin(), free_.end(), [wanted](const at::Tensor& block) {
      return block_fits(block.numel(), wanted);
    });
    if (found == free_.end()) --found;
    one.splice(one.end(), free_, found);
    return one;
  }

  std::mutex mutex_;
  One free_;  // guarded by mutex_; the most recently used first
};

// The memory of one tensor.
class RecycledMemory::Block final : public TensorMemory {
 public:
  Block(std::shared_ptr<Store> store, Store::One bytes)
      : store_(std::move(store)), bytes_(std::move(bytes)) {}
  ~Block() override { store_->give_back(std::move(bytes_)); }
  bool exclusive() const override { return true; }

 private:
  const std::shared_ptr<Store> store_;
  Store::One bytes_;
};

RecycledMemory::RecycledMemory() : store_(std::make_shared<Store>()) {}

at::Tensor RecycledMemory::take(const at::Tensor& like) const {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  if (!like.is_cpu() || bytes < kLeastRecycled || has_send_memory())
    return empty_to_send(like.sizes(), like.scalar_type(), like.device());
  Store::One block = store_->take(whole_units(bytes));
  void* const data = block.front().data_ptr();
  return tensor_on(data, like.sizes(), like.scalar_type(),
                   std::make_unique<Block>(store_, std::move(block)));
}

at::Tensor RecycledMemory::copy_of(const at::Tensor& t) const {
  at::Tensor copy = take(t);
  copy.copy_(t);
  return copy;
}

}  // namespace grapevine
