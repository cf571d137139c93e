// QueuedBytes: counts the bytes that wait in the links of a transport, for any thread to read.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace grapevine {

// Of all links of a transport. An actor reads it without waiting for the threads that send.
using QueuedTotal = std::atomic<std::uint64_t>;

// The bytes of one link: a part of a total. Not thread-safe, but for the total.
class QueuedBytes {
 public:
  QueuedBytes() = default;
  ~QueuedBytes() { clear(); }
  QueuedBytes(const QueuedBytes&) = delete;
  QueuedBytes& operator=(const QueuedBytes&) = delete;

  // Counts in that total from now on, with the bytes that wait already; null: in none.
  void count_in(std::shared_ptr<QueuedTotal> total) {
    const std::uint64_t own = own_;
    clear();
    total_ = std::move(total);
    add(own);
  }
  void add(std::uint64_t bytes) {
    own_ += bytes;
    if (total_ != nullptr) total_->fetch_add(bytes, std::memory_order_relaxed);
  }
  // Bytes that were cleared meanwhile are not removed again.
  void remove(std::uint64_t bytes) {
    const std::uint64_t removed = std::min(bytes, own_);
    own_ -= removed;
    if (total_ != nullptr) total_->fetch_sub(removed, std::memory_order_relaxed);
  }
  void clear() { remove(own_); }

 private:
  std::shared_ptr<QueuedTotal> total_;
  std::uint64_t own_ = 0;
};

}  // namespace grapevine
