#include "net/shm/shm_inbound.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "net/shm/shm_socket.hpp"

namespace grapevine::shm {
namespace {

// Bytes that a link keeps. Large tensors are copied only where the sender's arena is full.
constexpr std::uint64_t kKeptForCopies = std::uint64_t{4} << 20;

Error bad_record(const char* what) { return {Errc::protocol, what}; }

// A tensor in a block of another process.
class BorrowedMemory final : public TensorMemory {
 public:
  BorrowedMemory(std::shared_ptr<Returns> returns, std::shared_ptr<SharedMemory> segment,
                 std::uint32_t slot, bool exclusive)
      : returns_(std::move(returns)),
        segment_(std::move(segment)),
        slot_(slot),
        exclusive_(exclusive) {}
  ~BorrowedMemory() override { returns_->give_back(slot_); }
  bool exclusive() const override { return exclusive_; }

 private:
  const std::shared_ptr<Returns> returns_;
  const std::shared_ptr<SharedMemory> segment_;  // mapped as long as the tensor lives
  const std::uint32_t slot_;
  const bool exclusive_;
};

}  // namespace

// There is always room: the sender lends no more than kSlots at a time.
void Returns::give_back(std::uint32_t slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  box_.returns[returned_ % kSlots] = slot;
  box_.returned.store(++returned_, std::memory_order_release);
}

Inbound::Inbound(std::shared_ptr<SharedMemory> outbox, int socket, FileDescriptor lease,
                 const CodecLimits& limits)
    : ring_(outbox),
      socket_(socket),
      returns_(std::make_shared<Returns>(std::move(outbox), std::move(lease))),
      limits_(limits),
      pool_(kKeptForCopies) {}

Expected<int> Inbound::receive(RecordSink& sink, int most) {
  int count = 0;
  while (count < most) {
    const auto record = ring_.next();
    if (!record) return record.error();
    if (!*record) break;
    const Expected<void> taken = take(**record, sink);
    if (!taken) return taken.error();
    ring_.done(**record);
    ++count;
  }
  if (count == 0) return 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the room first, then `waits`
  std::atomic<std::uint32_t>& waits = ring_.box().waits;
  if (waits.load(std::memory_order_relaxed) != 0 && waits.exchange(0) != 0) ring_bell();
  return count;
}

void Inbound::ring_bell() {
  const std::byte bell{};
  send_packet(socket_, &bell, 1);
}

bool Inbound::sleep() {
  ring_.box().asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // `asleep` first, then the records
  return ring_.empty();
}

void Inbound::wake() { ring_.box().asleep.store(0, std::memory_order_relaxed); }

Expected<void> Inbound::take(const RingReader::Record& record, RecordSink& sink) {
  std::uint64_t number = 0;
  if (record.bytes >= sizeof number) std::memcpy(&number, record.body, sizeof number);
  switch (record.header.kind) {
    case RecordKind::pad:
      return {};
    case RecordKind::message:
      return take_message(record, sink);
    case RecordKind::fragment:
      return take_fragment(record, sink);
    case RecordKind::departure:
      if (assembling_) return bad_record("a departure inside of a message");
      return sink.on_departure(static_cast<Rank>(static_cast<std::uint32_t>(number)));
    case RecordKind::goodbye:
      sink.on_goodbye();
      return {};
    case RecordKind::retired:
      segments_.erase(static_cast<std::uint32_t>(number));
      return {};
  }
  return bad_record("a record of an unknown kind");
}

Expected<void> Inbound::take_message(const RingReader::Record& record, RecordSink& sink) {
  if (assembling_) return bad_record("a message inside of a message");
  copy_.assign(record.body, record.body + record.bytes);
  const std::byte* at = copy_.data();
  const std::byte* const end = at + copy_.size();
  MessageHead head;
  if (copy_.size() < sizeof head) return bad_record("a message without a head");
  std::memcpy(&head, at, sizeof head);
  at += sizeof head;
  if (head.header_bytes > kMaxHeaderBytes ||
      padded(head.header_bytes) > static_cast<std::size_t>(end - at))
    return bad_record("a header that is longer than its record");
  Expected<DecodedHeader> decoded = decode_header(at, head.header_bytes, limits_);
  if (!decoded) return decoded.error();
  message_ = *std::move(decoded);
  at += padded(head.header_bytes);
  if (head.tensors != message_.tensors.size()) return bad_record("another number of tensors");
  const Expected<void> admitted = sink.admit(message_.envelope.from, message_.envelope.to);
  if (!admitted) return admitted;
  const Expected<void> read = read_parts(at, end);
  if (!read) return read;
  assembling_ = true;
  tensor_ = 0;
  filled_ = 0;
  return finish_message(sink);
}

Expected<void> Inbound::read_parts(const std::byte* from, const std::byte* end) {
  const std::size_t count = message_.tensors.size();
  if (count * sizeof(TensorPart) > static_cast<std::size_t>(end - from))
    return bad_record("a message without the places of its tensors");
  parts_.resize(count);
  if (count > 0) std::memcpy(parts_.data(), from, count * sizeof(TensorPart));
  const std::byte* inlined = from + count * sizeof(TensorPart);
  payload_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    Expected<at::Tensor> tensor = tensor_of(message_.tensors[i], parts_[i], inlined, end);
    if (!tensor) return tensor.error();
    payload_.push_back(*std::move(tensor));
  }
  return {};
}

// `inlined`: the bytes of the tensors from this one on, as far as they are in the record.
Expected<at::Tensor> Inbound::tensor_of(const TensorDescriptor& tensor, const TensorPart& part,
                                        const std::byte*& inlined, const std::byte* end) {
  if (!tensor.present || tensor.bytes == 0) {
    if (part.where != Where::nowhere) return bad_record("a place of no bytes");
    return pool_.allocate(tensor);
  }
  switch (part.where) {
    case Where::fragments:
      return pool_.allocate(tensor);
    case Where::block:
      return block_of(tensor, part);
    case Where::inlined: {
      if (tensor.bytes > static_cast<std::uint64_t>(end - inlined))
        return bad_record("a tensor that is longer than its record");
      at::Tensor t = pool_.allocate(tensor);
      std::memcpy(t.data_ptr(), inlined, tensor.bytes);
      inlined +=
          std::min<std::size_t>(padded(tensor.bytes), static_cast<std::size_t>(end - inlined));
      return t;
    }
    default:
      return bad_record("a tensor without a place");
  }
}

Expected<at::Tensor> Inbound::block_of(const TensorDescriptor& tensor, const TensorPart& part) {
  const auto memory = segment(part.segment);
  if (!memory) return memory.error();
  const std::uint64_t size = (*memory)->bytes();
  if (part.slot >= kSlots || part.offset % c10::elementSize(tensor.dtype) != 0 ||
      part.offset > size || tensor.bytes > size - part.offset)
    return bad_record("a tensor outside of its segment");
  return tensor_on(
      (*memory)->data() + part.offset, tensor.sizes, tensor.dtype,
      std::make_unique<BorrowedMemory>(returns_, *memory, part.slot, part.exclusive == 1));
}

Expected<std::shared_ptr<SharedMemory>> Inbound::segment(std::uint32_t id) {
  auto found = segments_.find(id);
  if (found == segments_.end()) {  // its packet was sent before the record
    const Expected<bool> read = read_packets();
    if (!read) return read.error();
    found = segments_.find(id);
  }
  if (found == segments_.end()) return bad_record("a tensor in an unknown segment");
  return found->second;
}

Expected<void> Inbound::take_fragment(const RingReader::Record& record, RecordSink& sink) {
  if (!assembling_) return bad_record("a fragment without its message");
  std::uint64_t count = 0;
  if (record.bytes < sizeof count) return bad_record("a fragment without a length");
  std::memcpy(&count, record.body, sizeof count);
  const std::uint64_t missing = message_.tensors[tensor_].bytes - filled_;
  if (count == 0 || count > record.bytes - sizeof count || count > missing)
    return bad_record("a fragment of an impossible length");
  std::memcpy(static_cast<std::byte*>(payload_[tensor_].data_ptr()) + filled_,
              record.body + sizeof count, count);
  filled_ += count;
  return finish_message(sink);
}

// Delivers the message once all tensors are filled.
Expected<void> Inbound::finish_message(RecordSink& sink) {
  for (; tensor_ < parts_.size(); ++tensor_, filled_ = 0)
    if (parts_[tensor_].where == Where::fragments && filled_ < message_.tensors[tensor_].bytes)
      return {};
  assembling_ = false;
  Expected<Envelope> envelope =
      assemble(std::move(message_), std::exchange(payload_, std::vector<at::Tensor>()));
  if (!envelope) return envelope.error();
  sink.on_message(*std::move(envelope));
  return {};
}

Expected<bool> Inbound::read_packets() {
  Packet packet;
  for (;;) {
    const Received received = receive_packet(socket_, packet);
    if (received == Received::nothing) return true;
    if (received == Received::closed) return false;
    if (received == Received::no_descriptors) return Error{Errc::io, kNoDescriptors};
    if (packet.bytes.size() == 1 && packet.descriptors.empty()) {
      rung_ = true;
      continue;
    }
    SegmentPacket segment;
    if (packet.descriptors.size() != 1 || !read_as(packet, segment))
      return bad_record("a packet of an unknown kind");
    const Expected<void> added = add_segment(segment, std::move(packet.descriptors.front()));
    if (!added) return added.error();
  }
}

Expected<void> Inbound::add_segment(const SegmentPacket& packet, FileDescriptor file) {
  if (packet.magic != SegmentPacket::kMagic || segments_.count(packet.segment) > 0)
    return bad_record("a segment that is none");
  auto memory = SharedMemory::open(std::move(file), packet.bytes);
  if (!memory) return memory.error();
  segments_.emplace(packet.segment, *std::move(memory));
  return {};
}

}  // namespace grapevine::shm
