// TraceBudget: how many records of a process's trace may wait for the disk.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace grapevine {

// Shared by the Peers, which take from it, and their Tracer, which gives back what it has written.
// Thread-safe.
class TraceBudget {
 public:
  // About 80 MB of records in messages.
  static constexpr std::size_t kUsual = std::size_t{1} << 19;

  explicit TraceBudget(std::size_t most = kUsual) : free_(static_cast<std::int64_t>(most)) {}

  // False where so many do not fit: they are counted as dropped.
  bool take(std::size_t records) {
    const auto wanted = static_cast<std::int64_t>(records);
    if (free_.fetch_sub(wanted) >= wanted) return true;
    free_.fetch_add(wanted);
    dropped_ += records;
    return false;
  }
  void give_back(std::size_t records) { free_ += static_cast<std::int64_t>(records); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::atomic<std::int64_t> free_;
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace grapevine
