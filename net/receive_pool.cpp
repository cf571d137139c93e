#include "net/receive_pool.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace grapevine {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallestPooled = 64 * 1024;  // malloc recycles smaller blocks by itself

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// A block of an older size may serve, but a large one is not spent on a small tensor.
bool fits(std::size_t block, std::size_t wanted) {
  return block >= wanted && block - wanted <= wanted / 4;
}

}  // namespace

ReceivePool::ReceivePool(std::uint64_t keep_bytes) : store_(std::make_shared<Store>(keep_bytes)) {}

std::vector<at::Tensor> ReceivePool::allocate(const DecodedHeader& header) {
  std::vector<at::Tensor> payload;
  for (const TensorDescriptor& t : header.tensors) {
    if (!t.present) {
      payload.emplace_back();
    } else if (t.bytes < kSmallestPooled) {
      payload.emplace_back(at::detail::empty_cpu(t.sizes, t.dtype));
    } else {
      const Block block = store_->take(t.bytes);
      const auto give_back = [store = store_, block](void*) { store->give_back(block); };
      payload.push_back(
          at::from_blob(block.memory, t.sizes, give_back, at::TensorOptions(t.dtype)));
    }
  }
  return payload;
}

ReceivePool::Store::~Store() {
  for (const Block& block : kept_) std::free(block.memory);
}

ReceivePool::Block ReceivePool::Store::take(std::size_t bytes) {
  const std::size_t wanted = whole_pages(bytes);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Block& b) { return fits(b.bytes, wanted); });
    if (found != kept_.end()) {
      const Block block = *found;
      kept_.erase(found);
      kept_bytes_ -= block.bytes;
      return block;
    }
  }
  void* memory = std::aligned_alloc(kPage, wanted);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, wanted};
}

void ReceivePool::Store::give_back(Block block) {
  std::vector<void*> freed;  // outside the lock: returning pages to the system takes long
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_front(block);
    kept_bytes_ += block.bytes;
    while (kept_bytes_ > keep_bytes_) {
      freed.push_back(kept_.back().memory);
      kept_bytes_ -= kept_.back().bytes;
      kept_.pop_back();
    }
  }
  for (void* memory : freed) std::free(memory);
}

}  // namespace grapevine
