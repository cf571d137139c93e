#include "gpu/memory/staging.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace grapevine {
namespace {

constexpr std::size_t kGranule = 4096;
constexpr std::size_t kLargestStep = std::size_t{2} << 20;

struct Block {
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;
};

}  // namespace

struct StagingPool::Shelf {
  Allocate allocate;
  std::size_t limit = 0;

  mutable std::mutex mutex;
  std::vector<Block> free;
  Usage usage;

  // Without memory where the limit or the allocator refuses.
  Block take(std::size_t bytes) {
    std::vector<Block> victims;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (Block found = reuse(bytes); found.memory) return found;
      if (usage.bytes - usage.free_bytes + bytes > limit) return none();
      victims = make_room(bytes);
      usage.bytes += bytes;
    }
    victims.clear();  // before the new one is locked, so that the limit holds
    std::shared_ptr<void> memory = allocate(bytes);
    if (memory) return {std::move(memory), bytes};
    const std::lock_guard<std::mutex> lock(mutex);
    usage.bytes -= bytes;
    return none();
  }

  void give_back(Block block) {
    const std::lock_guard<std::mutex> lock(mutex);
    usage.free_bytes += block.bytes;
    free.push_back(std::move(block));
  }

 private:
  // The smallest that fits, unless most of it would lie idle.
  Block reuse(std::size_t bytes) {
    auto best = free.end();
    for (auto it = free.begin(); it != free.end(); ++it)
      if (it->bytes >= bytes && it->bytes <= 2 * bytes &&
          (best == free.end() || it->bytes < best->bytes))
        best = it;
    if (best == free.end()) return {};
    Block found = std::move(*best);
    free.erase(best);
    usage.free_bytes -= found.bytes;
    return found;
  }

  // Idle blocks to be freed for `bytes` to fit, longest idle first. REQUIRES: with all of them
  // gone, they fit.
  std::vector<Block> make_room(std::size_t bytes) {
    std::vector<Block> victims;
    auto it = free.begin();
    for (; usage.bytes + bytes > limit; ++it) {
      usage.bytes -= it->bytes;
      usage.free_bytes -= it->bytes;
      victims.push_back(std::move(*it));
    }
    free.erase(free.begin(), it);
    return victims;
  }

  Block none() {
    ++usage.overflows;
    return {};
  }
};

StagingPool::StagingPool(Allocate allocate, std::size_t limit_bytes)
    : shelf_(std::make_shared<Shelf>()) {
  shelf_->allocate = std::move(allocate);
  shelf_->limit = limit_bytes;
}

StagingPool::~StagingPool() = default;

std::size_t StagingPool::block_bytes(std::size_t bytes) {
  std::size_t power = kGranule;
  while (power <= bytes / 2) power *= 2;
  const std::size_t step = std::clamp(power / 4, kGranule, kLargestStep);
  return (bytes + step - 1) / step * step;
}

at::Tensor StagingPool::try_take(at::IntArrayRef shape, at::ScalarType dtype) {
  release_reached();
  const at::TensorOptions options(dtype);
  const std::size_t bytes =
      static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
  if (bytes == 0) return at::empty(shape, options);
  Block block = shelf_->take(block_bytes(bytes));
  if (!block.memory) return {};
  void* memory = block.memory.get();
  // The pool may have ended by then: the memory ends with the block.
  auto give_back = [shelf = std::weak_ptr<Shelf>(shelf_), block](void*) {
    if (const auto alive = shelf.lock()) alive->give_back(block);
  };
  return at::from_blob(memory, shape, std::move(give_back), options);
}

void StagingPool::hold(at::Tensor t, EventHandle event) {
  release_reached();
  if (event == nullptr || event->reached()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  held_.push_back({std::move(t), std::move(event)});
}

void StagingPool::release_reached() {
  std::vector<Held> reached;  // ends outside the lock: its tensors go back to the shelf
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto first = std::stable_partition(held_.begin(), held_.end(),
                                           [](const Held& each) { return !each.event->reached(); });
  std::move(first, held_.end(), std::back_inserter(reached));
  held_.erase(first, held_.end());
}

StagingPool::Usage StagingPool::usage() const {
  const std::lock_guard<std::mutex> lock(shelf_->mutex);
  return shelf_->usage;
}

}  // namespace grapevine
