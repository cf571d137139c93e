// What must hold for any bytes that reach the codec; shared by the fuzzer and the mutation test.
#pragma once
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "messages/codec.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {

inline CodecLimits fuzz_limits() {
  CodecLimits limits;
  limits.max_payload_bytes = 4096;
  limits.max_elements = 1024;
  limits.world_size = 8;
  return limits;
}

struct CodecVerdict {
  bool accepted = false;
  std::string flaw;  // empty: all is well
};

// Bytes are refused by a protocol error of one line, or decode within the limits and encode to
// themselves.
inline CodecVerdict check_codec(const std::byte* data, std::size_t size) {
  const CodecLimits limits = fuzz_limits();
  const Expected<Envelope> decoded = decode(data, size, limits);
  if (!decoded) {
    const Error& error = decoded.error();
    if (error.code != Errc::protocol) return {false, "another error code: " + error.message};
    if (error.message.empty() || has_control_characters(error.message))
      return {false, "not one line: " + error.message};
    return {};
  }
  std::uint64_t payload = 0;
  for (const FrozenTensor& t : payload_of(*decoded)) {
    payload += t.nbytes();
    if (t.numel() > limits.max_elements) return {true, "a tensor beyond the limit"};
  }
  if (payload > limits.max_payload_bytes) return {true, "a payload beyond the limit"};
  if (wire_size(*decoded) != size) return {true, "wire_size is not the size"};
  const std::vector<std::byte> again = encode(*decoded);
  if (again.size() != size || std::memcmp(again.data(), data, size) != 0)
    return {true, "accepted bytes that encode to others"};
  return {true, ""};
}

}  // namespace grapevine
