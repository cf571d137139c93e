// The memory of this process that others map: payloads that are sent without a copy.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "messages/tensor_memory.hpp"
#include "net/shm/shm_lender.hpp"
#include "net/shm/shm_memory.hpp"

namespace grapevine::shm {

struct BlockPlace {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
};

// Segments of shared memory, cut into blocks. Only this process allocates and frees; no other one
// can disturb that, because the lists are in its own memory. A block is free once the last handle
// on its tensor has gone, here and, by the Lenders, in other processes.
//
// It grows by segments, and keeps unused ones for later tensors, up to a limit. Thread-safe.
class Arena final : public SendMemory, public std::enable_shared_from_this<Arena> {
 public:
  // At most `limit` bytes in segments; none is smaller than `smallest`.
  explicit Arena(std::uint64_t limit, std::uint64_t smallest = std::uint64_t{4} << 20)
      : limit_(limit), smallest_(smallest) {}
  ~Arena() override;

  // That of all transports of this process: half of the machine's memory at most.
  static const std::shared_ptr<Arena>& of_process();

  // Undefined where neither the arena nor the system has the memory.
  at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype) override;
  bool owns(const at::Tensor& t) const override;
  // Ends the lenders that are over.
  void collect() override;

  // REQUIRES: owns(t).
  static BlockPlace place_of(const at::Tensor& t);
  // Null: it is no longer used.
  std::shared_ptr<SharedMemory> segment(std::uint32_t id) const;

  // Collects from it before memory is allocated, until it is over.
  void add(std::shared_ptr<Lender> lender);
  // A transport has its first link, ends. Between the two empty_to_send() takes from this arena,
  // and unused memory is kept.
  void enter();
  void leave();

  std::uint64_t bytes() const;       // of all segments
  std::uint64_t free_bytes() const;  // of them, unused
 private:
  friend class ArenaMemory;
  struct Segment {
    std::shared_ptr<SharedMemory> memory;
    std::map<std::uint64_t, std::uint64_t> free;  // offset: bytes; neighbours are merged
    std::uint64_t unused = 0;
  };

  bool take(std::uint64_t bytes, BlockPlace& place, std::byte*& data);
  bool grow(std::uint64_t bytes);
  void give_back(const BlockPlace& place, std::uint64_t bytes);
  void shrink(std::vector<std::shared_ptr<SharedMemory>>& dropped);

  const std::uint64_t limit_;
  const std::uint64_t smallest_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::uint32_t, Segment> segments_;
  std::uint32_t next_segment_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
  std::size_t users_ = 0;
  std::mutex lenders_mutex_;                      // taken before mutex_
  std::vector<std::shared_ptr<Lender>> lenders_;  // guarded by lenders_mutex_
};

}  // namespace grapevine::shm
