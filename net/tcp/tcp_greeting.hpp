// The greeting on a TCP connection between two processes, then frames follow (tcp_frames.hpp):
//
//   dialler → listener  Hello with a nonce
//   listener → dialler  Hello with a nonce
//   dialler → listener  Proof
//   listener → dialler  Proof, or a refusal
//
// A proof is an HMAC under the job's token of both nonces, of what the process says of itself and
// of the process at the other end: the token is not sent, a recorded greeting is of no use, since
// the other nonce is new, and one that reaches another process is refused there. The dialler proves
// itself first: without the token it learns the versions of the listener alone. All integers are
// little-endian.
//
// Hello, 48 bytes, the same in all versions up to the codec's; a listener of another version
// answers with its own, so that the dialler can name both:
//   offset  size
//        0     4  magic "GVTC"
//        4     2  version of this protocol
//        6     2  version of the codec
//        8    32  nonce: random, in hexadecimal digits
//       40     8  zero
//
// Proof, 84 bytes:
//        0     4  process: the sender's index
//        4     4  to: the index of the process that the dialler means; in an answer, of the dialler
//        8     4  refusal: 0 accepted; else why the connection ends now
//       12     8  digest of the placement
//       20    64  HMAC in hexadecimal digits; where the dialler's was wrong, all but the refusal is
//       0
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/process_links.hpp"

namespace grapevine::tcp {

inline constexpr std::uint32_t kMagic = 0x43545647;  // "GVTC" in memory order
inline constexpr std::uint16_t kProtocolVersion = 4;
inline constexpr std::size_t kHelloBytes = 48;
inline constexpr std::size_t kProofBytes = 84;

struct Hello {
  std::string nonce;  // kNonceDigits
};

// With a new nonce.
Hello make_hello();
std::vector<std::byte> encode_hello(const Hello& hello);
// Whether another version of this protocol may have sent it. REQUIRES: kHelloBytes.
bool is_of_this_protocol(const std::byte* data);
// Errors (protocol): bytes that no process of this version sends. REQUIRES: kHelloBytes of them.
Expected<Hello> decode_hello(const std::byte* data);

struct Proof {
  std::int32_t process = 0;
  std::int32_t to = 0;
  Refusal refusal = Refusal::none;
  std::uint64_t placement = 0;
  std::string mac;  // kProofDigits; empty: none
};

std::vector<std::byte> encode_proof(const Proof& proof);
// Errors (protocol): bytes that no process sends. REQUIRES: kProofBytes of them.
Expected<Proof> decode_proof(const std::byte* data);

// The nonces of a connection.
struct Nonces {
  std::string dialler, listener;
};

// `to`: the process that is dialled.
Proof proof_of_dialler(const LinkIdentity& own, std::int32_t to, const Nonces& nonces);
// The answer to the proof of that dialler, which was right.
Proof proof_of_listener(const LinkIdentity& own, Refusal refusal, const Nonces& nonces,
                        const Proof& dialler);
// Whether its sender knows the token, and means this connection.
bool is_right_dialler(const Proof& dialler, const JobToken& token, const Nonces& nonces);
bool is_right_listener(const Proof& listener, const JobToken& token, const Nonces& nonces,
                       const Proof& dialler);

}  // namespace grapevine::tcp
