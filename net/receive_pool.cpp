#include "net/receive_pool.hpp"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <list>
#include <mutex>
#include <utility>

#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSmallestPooled = kPage;  // the C library recycles smaller blocks by itself

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// A block of an older size may serve, but a large one is not spent on a small tensor.
bool fits(std::uint64_t block, std::uint64_t wanted) {
  return block >= wanted && block - wanted <= wanted / 4;
}

constexpr std::size_t kClasses = 64;

// By the logarithm of the size: those that fit lie in the class of the wanted size or the next one.
std::size_t class_of(std::uint64_t bytes) {
  std::size_t log = 0;
  for (; bytes > 1; bytes /= 2) ++log;
  return log;
}

}  // namespace

// Unused memory. A block lies in a list of its own while it is used: to give it back allocates
// nothing.
class ReceivePool::Store {
 public:
  struct Memory {
    at::Tensor block;  // of bytes
    std::uint64_t bytes = 0;
    std::uint64_t given_back = 0;  // the number of blocks that were given back before
  };
  using One = std::list<Memory>;

  explicit Store(std::uint64_t keep_bytes) : keep_bytes_(keep_bytes) {}

  One take(std::uint64_t bytes) {
    const std::uint64_t wanted = whole_pages(bytes);
    One one = take_kept(wanted);
    if (!one.empty()) return one;
    at::Tensor block = at::detail::empty_cpu({static_cast<std::int64_t>(wanted)}, at::kByte);
    one.push_back({std::move(block), wanted});
    return one;
  }

  void give_back(One one) {
    if (one.front().bytes > keep_bytes_) return;  // it would take the place of all others
    One freed;  // outside the lock: returning pages to the system takes long
    const std::lock_guard<std::mutex> lock(mutex_);
    one.front().given_back = ++given_back_;
    kept_bytes_ += one.front().bytes;
    One& kept = kept_[class_of(one.front().bytes)];
    kept.splice(kept.begin(), one);
    while (kept_bytes_ > keep_bytes_) {
      One& oldest = least_recently_used();
      kept_bytes_ -= oldest.back().bytes;
      freed.splice(freed.end(), oldest, std::prev(oldest.end()));
    }
  }

 private:
  One take_kept(std::uint64_t wanted) {
    One one;
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t first = class_of(wanted), last = class_of(wanted + wanted / 4);
    for (std::size_t c = first; c <= last && one.empty(); ++c) {
      const auto found = std::find_if(kept_[c].begin(), kept_[c].end(),
                                      [&](const Memory& m) { return fits(m.bytes, wanted); });
      if (found != kept_[c].end()) one.splice(one.end(), kept_[c], found);
    }
    for (const Memory& block : one) kept_bytes_ -= block.bytes;
    return one;
  }

  // REQUIRES: some memory is kept.
  One& least_recently_used() {
    One* oldest = nullptr;
    for (One& kept : kept_) {
      const bool older = !kept.empty() &&
                         (oldest == nullptr || kept.back().given_back < oldest->back().given_back);
      if (older) oldest = &kept;
    }
    return *oldest;
  }

  const std::uint64_t keep_bytes_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::array<One, kClasses> kept_;  // in each class the most recently used first
  std::uint64_t kept_bytes_ = 0;
  std::uint64_t given_back_ = 0;
};

// The memory of one tensor.
class ReceivePool::Block final : public TensorMemory {
 public:
  Block(std::shared_ptr<Store> store, Store::One memory)
      : store_(std::move(store)), memory_(std::move(memory)) {}
  ~Block() override { store_->give_back(std::move(memory_)); }
  bool exclusive() const override { return true; }

 private:
  const std::shared_ptr<Store> store_;
  Store::One memory_;
};

ReceivePool::ReceivePool(std::uint64_t keep_bytes) : store_(std::make_shared<Store>(keep_bytes)) {}

std::vector<at::Tensor> ReceivePool::allocate(const DecodedHeader& header) {
  std::vector<at::Tensor> payload;
  payload.reserve(header.tensors.size());
  for (const TensorDescriptor& tensor : header.tensors) payload.push_back(allocate(tensor));
  return payload;
}

at::Tensor ReceivePool::allocate(const TensorDescriptor& tensor) {
  if (!tensor.present) return {};
  if (tensor.bytes < kSmallestPooled) return at::detail::empty_cpu(tensor.sizes, tensor.dtype);
  Store::One memory = store_->take(tensor.bytes);
  void* const data = memory.front().block.data_ptr();
  return tensor_on(data, tensor.sizes, tensor.dtype,
                   std::make_unique<Block>(store_, std::move(memory)));
}

}  // namespace grapevine
