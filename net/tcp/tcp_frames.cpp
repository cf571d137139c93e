#include "net/tcp/tcp_frames.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "messages/check.hpp"
#include "messages/text/fnv1a.hpp"

namespace grapevine::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x43545647;  // "GVTC" in memory order

template <class T>
void put(std::vector<std::byte>& out, T value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
}

template <class T>
T get(const std::byte* data) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bits |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  return static_cast<T>(bits);
}

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

std::string describe(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "it accepted";
    case Refusal::duplicate_process:
      return "another process has this one's index: give every process its own";
    case Refusal::other_job:
      return "it belongs to another job: check the address, or end the older job";
    case Refusal::other_placement:
      return "it has other ranks in other processes: start all with the same placement";
    case Refusal::too_late:
      return "it has started without this process, or has lost it before";
    case Refusal::lower_process:
      return "a process dials only processes of lower index: check the list of addresses";
  }
  return "it refused for a reason that this version does not know";
}

std::uint64_t placement_digest(const Placement& placement) {
  std::vector<std::byte> bytes;
  put(bytes, placement.processes());
  for (const std::int32_t process : placement.process_of) put(bytes, process);
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> out;
  out.reserve(kHelloBytes);
  put(out, kMagic);
  put(out, kProtocolVersion);
  put(out, kCodecVersion);
  put(out, hello.process);
  put(out, static_cast<std::int32_t>(hello.refusal));
  out.insert(out.end(), hello.job.begin(), hello.job.end());
  put(out, hello.placement);
  out.resize(kHelloBytes);
  return out;
}

Expected<Hello> decode_hello(const std::byte* data) {
  if (get<std::uint32_t>(data) != kMagic) return refused("it does not speak this protocol");
  const auto version = get<std::uint16_t>(data + 4);
  const auto codec = get<std::uint16_t>(data + 6);
  if (version != kProtocolVersion || codec != kCodecVersion)
    return refused(fmt::format("it runs another version (protocol {}, codec {}; here {}, {})",
                               version, codec, kProtocolVersion, kCodecVersion));
  Hello hello;
  hello.process = get<std::int32_t>(data + 8);
  hello.refusal = static_cast<Refusal>(get<std::int32_t>(data + 12));
  std::copy_n(data + 16, hello.job.size(), hello.job.begin());
  hello.placement = get<std::uint64_t>(data + 32);
  const bool zeros =
      std::all_of(data + 40, data + kHelloBytes, [](std::byte b) { return b == std::byte{0}; });
  if (!zeros || hello.process < 0) return refused("its greeting is damaged");
  return hello;
}

std::vector<std::byte> encode_control(const Control& control) {
  std::vector<std::byte> out;
  put(out, kMagic);
  put(out, static_cast<std::int32_t>(control.kind));
  put(out, control.rank);
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

std::size_t FrameReader::take_payload(const std::byte* data, std::size_t size) {
  while (filled_ == message_.tensors[tensor_].bytes) {
    ++tensor_;
    filled_ = 0;
  }
  const std::uint64_t room = message_.tensors[tensor_].bytes - filled_;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(size, room));
  std::memcpy(static_cast<std::byte*>(payload_[tensor_].data_ptr()) + filled_, data, count);
  filled_ += count;
  missing_ -= count;
  return count;
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
  if (get<std::uint32_t>(header_.data()) == kMagic) {
    const auto kind = get<std::int32_t>(header_.data() + 4);
    if (kind < Control::rank_down || kind > Control::pong)
      return refused("a control frame of the unknown kind " + std::to_string(kind));
    const Control control{static_cast<Control::Kind>(kind), get<Rank>(header_.data() + 8)};
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
    payload_ = allocate_payload(message_);
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
