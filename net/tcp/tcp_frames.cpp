#include "net/tcp/tcp_frames.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "messages/check.hpp"
#include "net/little_endian.hpp"
#include "net/tcp/tcp_greeting.hpp"

namespace grapevine::tcp {
namespace {

// A large payload is fresh memory from the kernel, which provides it page by page as bytes arrive:
// half of the time for 100 MB. Only advice: where it is not followed, nothing else
// changes.
void ask_for_huge_pages(const at::Tensor& t) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  if (!t.defined() || t.nbytes() < 4 * kHugePage) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(t.data_ptr());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + t.nbytes()) / kHugePage * kHugePage;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

Error refused(const std::string& what) { return {Errc::protocol, what}; }

}  // namespace

std::vector<std::byte> encode_control(const Control& control) {
  std::vector<std::byte> out;
  little_endian::put(out, kMagic);
  little_endian::put(out, static_cast<std::int32_t>(control.kind));
  little_endian::put(out, control.rank);
  GRAPEVINE_CHECK(out.size() == kHeaderPrefixBytes, "a control frame of ", out.size());
  return out;
}

Expected<void> FrameReader::consume(const std::byte* data, std::size_t size, FrameSink& sink) {
  while (size > 0) {
    std::size_t taken = 0;
    if (in_payload_) {
      taken = take_payload(data, size);
    } else {
      const Expected<std::size_t> header = take_header(data, size, sink);
      if (!header) return header.error();
      taken = *header;
    }
    data += taken;
    size -= taken;
    if (in_payload_ && missing_ == 0) {
      Expected<void> finished = finish_message(sink);
      if (!finished) return finished;
    }
  }
  return {};
}

std::size_t FrameReader::payload_room(iovec* parts, std::size_t most) const {
  std::size_t count = 0;
  if (!in_payload_) return count;
  std::uint64_t skipped = filled_;
  for (std::size_t i = tensor_; i < payload_.size() && count < most; ++i) {
    const std::uint64_t room = message_.tensors[i].bytes - skipped;
    if (room > 0)
      parts[count++] = {static_cast<std::byte*>(payload_[i].data_ptr()) + skipped,
                        static_cast<std::size_t>(room)};
    skipped = 0;
  }
  return count;
}

Expected<void> FrameReader::payload_filled(std::size_t count, FrameSink& sink) {
  while (count > 0) count -= advance(count);
  return missing_ == 0 ? finish_message(sink) : Expected<void>();
}

// Counts at most `count` bytes as received, all of one tensor; returns their number.
std::size_t FrameReader::advance(std::uint64_t count) {
  while (filled_ == message_.tensors[tensor_].bytes) {
    ++tensor_;
    filled_ = 0;
  }
  const std::uint64_t taken = std::min(count, message_.tensors[tensor_].bytes - filled_);
  filled_ += taken;
  missing_ -= taken;
  return static_cast<std::size_t>(taken);
}

std::size_t FrameReader::take_payload(const std::byte* data, std::size_t size) {
  iovec room{};
  payload_room(&room, 1);
  const std::size_t count = std::min(size, room.iov_len);
  std::memcpy(room.iov_base, data, count);
  return advance(count);
}

Expected<std::size_t> FrameReader::take_header(const std::byte* data, std::size_t size,
                                               FrameSink& sink) {
  const std::size_t count = std::min(size, wanted_ - header_.size());
  header_.insert(header_.end(), data, data + count);
  if (header_.size() == wanted_ && wanted_ == kHeaderPrefixBytes) {
    const Expected<void> known = on_prefix(sink);
    if (!known) return known.error();
  }
  if (header_.size() == wanted_ && wanted_ > kHeaderPrefixBytes) {
    const Expected<void> begun = begin_message(sink);
    if (!begun) return begun.error();
  }
  return count;
}

// A control frame is complete; a message's header now has a length.
Expected<void> FrameReader::on_prefix(FrameSink& sink) {
  if (little_endian::get<std::uint32_t>(header_.data()) == kMagic) {
    const auto kind = little_endian::get<std::int32_t>(header_.data() + 4);
    if (kind < Control::rank_down || kind > Control::pong)
      return refused("a control frame of the unknown kind " + std::to_string(kind));
    const Control control{static_cast<Control::Kind>(kind),
                          little_endian::get<Rank>(header_.data() + 8)};
    header_.clear();
    return sink.on_control(control);
  }
  const Expected<std::size_t> length = header_size(header_.data(), header_.size());
  if (!length) return length.error();
  if (*length <= kHeaderPrefixBytes) return refused("a header without an envelope");
  wanted_ = *length;
  return {};
}

Expected<void> FrameReader::begin_message(FrameSink& sink) {
  Expected<DecodedHeader> decoded = decode_header(header_.data(), header_.size(), limits_);
  if (!decoded) return decoded.error();
  message_ = std::move(*decoded);
  const Expected<void> admitted = sink.admit(message_.envelope.from, message_.envelope.to);
  if (!admitted) return admitted;
  missing_ = message_.payload_bytes();
  try {
    payload_ = pool_.allocate(message_);
  } catch (const std::exception&) {  // of the allocator: LibTorch reports a lack of memory in no
                                     // other way
    return Error{Errc::io, "no memory for a payload of " + std::to_string(missing_) + " bytes"};
  }
  for (const at::Tensor& t : payload_) ask_for_huge_pages(t);
  header_.clear();
  wanted_ = kHeaderPrefixBytes;
  tensor_ = 0;
  filled_ = 0;
  in_payload_ = true;
  return {};
}

Expected<void> FrameReader::finish_message(FrameSink& sink) {
  in_payload_ = false;
  Expected<Envelope> envelope = assemble(std::move(message_), std::move(payload_));
  if (!envelope) return envelope.error();
  sink.on_message(std::move(*envelope));
  return {};
}

}  // namespace grapevine::tcp
