// ReplicaBarrier: threads continue together, or not at all.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// For a fixed number of threads, again and again. Thread-safe.
class ReplicaBarrier {
 public:
  explicit ReplicaBarrier(std::size_t size) : size_(size) {}

  // Returns when all have called it. Errors: timeout after `timeout`, peer_down where the barrier
  // was ended meanwhile or before; either ends it for all, and for good.
  Expected<void> wait(Duration timeout);

  // Waiting threads return with an error. Idempotent.
  void end();

 private:
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::size_t here_ = 0;
  std::size_t passes_ = 0;
  bool ended_ = false;
};

}  // namespace grapevine
