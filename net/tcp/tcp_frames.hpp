// The frames on a TCP connection between two processes, after one greeting in each direction
// (tcp_greeting.hpp). A frame is a message (messages/codec.hpp: header, payload) or a control
// frame. All integers are little-endian.
//
// Control frame, 12 bytes: as long as the prefix of a codec header, so that a reader needs the same
// number of bytes to tell them apart:
//        0     4  magic "GVTC"
//        4     4  kind: 1 rank down, 2 ping, 3 pong
//        8     4  rank; 0 for the others
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/codec.hpp"
#include "net/receive_pool.hpp"

namespace grapevine::tcp {

struct Control {
  enum Kind : std::int32_t { rank_down = 1, ping = 2, pong = 3 };
  Kind kind = ping;
  Rank rank = 0;
};

std::vector<std::byte> encode_control(const Control& control);

// An outgoing frame: `bytes` (a codec header or a control frame), then the tensors' bytes.
struct OutFrame {
  std::vector<std::byte> bytes;
  std::vector<FrozenTensor> payload;
};

// Receives the frames of a connection. An error ends the connection.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Whether a message may go from `from` to `to` here. Called before the payload is allocated.
  virtual Expected<void> admit(Rank from, Rank to) = 0;
  virtual void on_message(Envelope envelope) = 0;
  virtual Expected<void> on_control(const Control& control) = 0;
};

// Cuts a stream of bytes, in pieces of any size, into frames. Payloads lie in memory of the pool.
// Not thread-safe.
//
// A payload can be read from the socket to where it belongs: the caller lets the system write to
// payload_room() and reports the bytes by payload_filled(). All other bytes come by consume(),
// which copies a payload's.
class FrameReader {
 public:
  FrameReader(const CodecLimits& limits, ReceivePool& pool) : limits_(limits), pool_(pool) {}

  // Errors (protocol, io): bytes that no peer sends, a lack of memory, a refusal of the
  // sink. The reader is useless afterwards.
  Expected<void> consume(const std::byte* data, std::size_t size, FrameSink& sink);

  // The memory of the next bytes of a payload, `most` parts of it at most. Returns the number of
  // parts; 0 where the next byte belongs to none.
  std::size_t payload_room(iovec* parts, std::size_t most) const;
  // The first `count` bytes of that memory are there. Errors: as consume().
  Expected<void> payload_filled(std::size_t count, FrameSink& sink);

 private:
  std::size_t take_payload(const std::byte* data, std::size_t size);
  std::size_t advance(std::uint64_t count);
  Expected<std::size_t> take_header(const std::byte* data, std::size_t size, FrameSink& sink);
  Expected<void> on_prefix(FrameSink& sink);
  Expected<void> begin_message(FrameSink& sink);
  Expected<void> finish_message(FrameSink& sink);

  const CodecLimits limits_;
  ReceivePool& pool_;
  std::vector<std::byte> header_;            // the received part of it
  std::size_t wanted_ = kHeaderPrefixBytes;  // bytes of header_
  DecodedHeader message_;                    // valid while in_payload_
  std::vector<at::Tensor> payload_;          // "
  bool in_payload_ = false;
  std::size_t tensor_ = 0;     // the one that is being filled
  std::uint64_t filled_ = 0;   // bytes of it
  std::uint64_t missing_ = 0;  // bytes of all
};

}  // namespace grapevine::tcp
