// The greeting on a TCP connection between two processes: one Hello in each direction, then frames
// (tcp_frames.hpp). All integers are little-endian.
//
// Hello, 48 bytes:
//   offset  size
//        0     4  magic "GVTC"
//        4     2  version of this protocol
//        6     2  version of the codec
//        8     4  process: the sender's index
//       12     4  refusal: 0 accepted; else why the connection ends now
//       16    16  token of the job
//       32     8  digest of the placement
//       40     8  zero
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/process_links.hpp"
#include "net/token.hpp"

namespace grapevine::tcp {

inline constexpr std::uint32_t kMagic = 0x43545647;  // "GVTC" in memory order
inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr std::size_t kHelloBytes = 48;

struct Hello {
  std::int32_t process = 0;
  Refusal refusal = Refusal::none;
  JobToken job{};
  std::uint64_t placement = 0;
};

// Equal where two processes agree on the process of each rank (FNV-1a over process_of).

std::vector<std::byte> encode_hello(const Hello& hello);
// Errors (protocol): bytes that no process of this version sends. REQUIRES: kHelloBytes of them.
Expected<Hello> decode_hello(const std::byte* data);

}  // namespace grapevine::tcp
