// The queue of one direction of a link, in shared memory: bytes from one process to another.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "messages/expected.hpp"
#include "net/shm/shm_memory.hpp"

namespace grapevine::shm {

inline constexpr std::uint64_t kRingBytes = std::uint64_t{256} << 10;
inline constexpr std::uint32_t kSlots = 1024;  // payloads that one process has lent to another

// Made by the process that sends, mapped by the one that receives. Each field has one writer. Each
// side also keeps its own fields in memory of its own, and checks those of the other side.
struct ShmOutbox {
  alignas(64) std::atomic<std::uint64_t> written;   // sender: bytes of records, ever
  alignas(64) std::atomic<std::uint64_t> read;      // receiver: bytes of records, ever
  alignas(64) std::atomic<std::uint32_t> asleep;    // receiver: wants a bell for the next record
  alignas(64) std::atomic<std::uint32_t> waits;     // sender: wants a bell once records were read
  alignas(64) std::atomic<std::uint64_t> beats;     // sender: counts while its process runs
  alignas(64) std::atomic<std::uint64_t> returned;  // receiver: payloads given back, ever
  alignas(64) std::uint32_t returns[kSlots];        // receiver: their slots; number n at n % kSlots
  alignas(64) std::byte ring[kRingBytes];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

enum class RecordKind : std::uint32_t {
  pad = 1,        // up to the end of the ring
  message = 2,    // see shm_records.hpp
  fragment = 3,   // bytes of the payload of the last message
  departure = 4,  // a rank, 4 bytes
  goodbye = 5,    // nothing follows
  retired = 6     // a segment that is no longer used, 4 bytes
};

// Begins each record. Records have a multiple of 8 bytes and do not wrap around.
struct RecordHeader {
  std::uint32_t bytes = 0;  // of the whole record
  RecordKind kind = RecordKind::pad;
};

inline constexpr std::size_t kLongestRecord = kRingBytes / 4;

// One thread at a time.
class RingWriter {
 public:
  explicit RingWriter(std::shared_ptr<SharedMemory> memory);

  // Room for a record of `bytes`, header included; null where there is none now. The next call
  // overwrites it unless publish() came between. Errors (protocol): the receiver claims to have
  // read more than was written.
  Expected<std::byte*> reserve(std::size_t bytes);
  void publish(RecordKind kind, std::size_t bytes);

  // The bytes of all records so far, and of those that the receiver has read, by the last look().
  std::uint64_t written() const { return written_; }
  std::uint64_t read() const { return read_; }
  Expected<void> look();  // brings read() up to date

  ShmOutbox& box() const { return *box_; }

 private:
  Expected<bool> has_room(std::size_t bytes);

  const std::shared_ptr<SharedMemory> memory_;
  ShmOutbox* const box_;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
};

// One thread at a time.
class RingReader {
 public:
  explicit RingReader(std::shared_ptr<SharedMemory> memory);

  struct Record {
    RecordHeader header;
    const std::byte* body = nullptr;  // in shared memory: the sender may change it at any time
    std::size_t bytes = 0;            // of the body
  };
  // The oldest unread record; none: all are read. Errors (protocol): bytes that no sender writes.
  Expected<std::optional<Record>> next();
  // The sender may use the memory of that record again.
  void done(const Record& record);

  bool empty() const { return box_->written.load(std::memory_order_acquire) == read_; }
  ShmOutbox& box() const { return *box_; }

 private:
  const std::shared_ptr<SharedMemory> memory_;
  ShmOutbox* const box_;
  std::uint64_t read_ = 0;
};

inline std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace grapevine::shm
