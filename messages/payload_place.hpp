// Where a message belongs: its kind, operation, round and slice, as traces and errors name it.
#pragma once
#include <cstdint>

#include "messages/payload_kind.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

struct PayloadPlace {
  PayloadKind kind = PayloadKind::none;
  std::int64_t operation = -1;  // collective, round of gossip or exchange; -1: none
  std::int32_t round = -1;      // inside the operation
  std::int32_t index = -1;      // of the slice, or of the sender among the participants
};

PayloadPlace place_of(const Payload& payload);

}  // namespace grapevine
