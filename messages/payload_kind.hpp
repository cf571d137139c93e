// PayloadKind: the type of a message, and where it belongs, for traces and for people.
#pragma once
#include <cstdint>

namespace grapevine {

// In the order of Payload's alternatives (protocol.hpp), from 1. Part of the codec's and the
// trace's formats: a number is never reused.
enum class PayloadKind : std::uint8_t {
  none,
  share,
  leave,
  chunk,
  marker,
  swap,
  progress_update,
  activate,
  packed_chunk,
  ask,
  grant,
  commit,
  receipt,
  parameters,
  extension,
  state_chunk,
  state_received
};
inline constexpr std::uint8_t kLastPayloadKind =
    static_cast<std::uint8_t>(PayloadKind::state_received);

// The kind in words, as in "packed chunk"; "" for none.
const char* name_of(PayloadKind kind);

}  // namespace grapevine
