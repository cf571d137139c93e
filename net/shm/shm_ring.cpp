#include "net/shm/shm_ring.hpp"

#include <cstring>
#include <utility>

#include "messages/check.hpp"

namespace grapevine::shm {
namespace {

Error bad_ring(const char* what) { return {Errc::protocol, what}; }

ShmOutbox* outbox_in(const SharedMemory& memory) {
  GRAPEVINE_CHECK(memory.bytes() >= sizeof(ShmOutbox), "an outbox of ", memory.bytes(), " bytes");
  return reinterpret_cast<ShmOutbox*>(memory.data());
}

}  // namespace

RingWriter::RingWriter(std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)), box_(outbox_in(*memory_)) {}

Expected<void> RingWriter::look() {
  const std::uint64_t read = box_->read.load(std::memory_order_acquire);
  if (read > written_ || read < read_) return bad_ring("it has read what was not sent");
  read_ = read;
  return {};
}

Expected<bool> RingWriter::has_room(std::size_t bytes) {
  if (kRingBytes - (written_ - read_) >= bytes) return true;
  const Expected<void> seen = look();
  if (!seen) return seen.error();
  return kRingBytes - (written_ - read_) >= bytes;
}

Expected<std::byte*> RingWriter::reserve(std::size_t bytes) {
  GRAPEVINE_CHECK(bytes <= kLongestRecord, "a record of ", bytes, " bytes");
  const std::uint64_t at = written_ % kRingBytes;
  const std::uint64_t to_end = kRingBytes - at;
  const bool wraps = to_end < bytes;
  const Expected<bool> room = has_room(wraps ? to_end + bytes : bytes);
  if (!room) return room.error();
  if (!*room) return nullptr;
  if (!wraps) return box_->ring + at;
  const RecordHeader pad{static_cast<std::uint32_t>(to_end), RecordKind::pad};
  std::memcpy(box_->ring + at, &pad, sizeof pad);
  written_ += to_end;
  box_->written.store(written_, std::memory_order_release);
  return static_cast<std::byte*>(box_->ring);
}

void RingWriter::publish(RecordKind kind, std::size_t bytes) {
  const RecordHeader header{static_cast<std::uint32_t>(bytes), kind};
  std::memcpy(box_->ring + written_ % kRingBytes, &header, sizeof header);
  written_ += bytes;
  box_->written.store(written_, std::memory_order_release);
}

RingReader::RingReader(std::shared_ptr<SharedMemory> memory)
    : memory_(std::move(memory)), box_(outbox_in(*memory_)) {}

Expected<std::optional<RingReader::Record>> RingReader::next() {
  const std::uint64_t written = box_->written.load(std::memory_order_acquire);
  if (written == read_) return std::optional<Record>();
  const std::uint64_t available = written - read_;  // wraps to a huge number where it went back
  if (available > kRingBytes) return bad_ring("more bytes than its queue has");
  const std::uint64_t at = read_ % kRingBytes;
  if (available < sizeof(RecordHeader)) return bad_ring("a record without a header");
  Record record;
  std::memcpy(&record.header, box_->ring + at, sizeof record.header);
  const std::uint32_t bytes = record.header.bytes;
  if (bytes < sizeof(RecordHeader) || bytes % 8 != 0 || bytes > available ||
      bytes > kRingBytes - at || (record.header.kind != RecordKind::pad && bytes > kLongestRecord))
    return bad_ring("a record of an impossible length");
  record.body = box_->ring + at + sizeof(RecordHeader);
  record.bytes = bytes - sizeof(RecordHeader);
  return std::optional<Record>(record);
}

void RingReader::done(const Record& record) {
  read_ += record.header.bytes;
  box_->read.store(read_, std::memory_order_release);
}

}  // namespace grapevine::shm
