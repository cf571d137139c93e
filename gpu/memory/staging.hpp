// StagingPool: pinned host memory for copies to and from a device, bounded and reused.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/device.hpp"

namespace grapevine {

// Locking pages takes milliseconds, may wait for the whole device (so may unlocking them), and
// keeps them from the rest of the machine. So blocks are kept for the next taker, come in few
// sizes, and have a limit; only where that is reached are idle ones freed, as many as the taker
// needs. A tensor's block returns by itself when the last handle on its storage ends, on
// any thread, also after it was frozen, sent and thawed.
//
// Thread-safe. Tensors may outlive the pool.
class StagingPool {
 public:
  // Null: there is no more. Called, as is the deleter, outside the pool's locks, so from several
  // threads at once where several take.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;

  StagingPool(Allocate allocate, std::size_t limit_bytes);
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // A contiguous pinned (or empty) tensor on the CPU, contents undefined; none, an undefined
  // tensor, beyond the limit or where pages cannot be locked.
  at::Tensor try_take(at::IntArrayRef shape, at::ScalarType dtype);

  // What `bytes` take of the limit: at most a quarter, or a page, more, and at most 2 MiB. Four
  // sizes for each power of two up to 8 MiB, so that batches of all lengths soon find a block;
  // models, whose size does not change, take what they need.
  static std::size_t block_bytes(std::size_t bytes);

  // Keeps the memory of `t` from being reused until `event` is reached: a copy is using it.
  void hold(at::Tensor t, EventHandle event);

  struct Usage {
    std::size_t bytes = 0;       // pinned, lent or not
    std::size_t free_bytes = 0;  // of them, waiting for a taker
    std::int64_t overflows = 0;  // takers that got no pinned memory
  };
  Usage usage() const;

 private:
  struct Shelf;
  struct Held {
    at::Tensor tensor;
    EventHandle event;
  };

  void release_reached();

  const std::shared_ptr<Shelf> shelf_;  // lent tensors know it weakly
  std::mutex mutex_;
  std::vector<Held> held_;  // guarded by mutex_
};

}  // namespace grapevine
