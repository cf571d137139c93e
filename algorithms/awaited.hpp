// Awaited: a message that a rank waits for.
#pragma once
#include <cstdint>

#include "messages/ids.hpp"
#include "messages/payload_kind.hpp"

namespace grapevine {

struct Awaited {
  Rank from = -1;  // its sender; -1: any of several ranks
  PayloadKind payload = PayloadKind::none;
  std::int64_t operation = -1;  // collective, round of gossip or exchange; -1: none
  // The next message of how many in the operation, from 1; -1: not counted.
  std::int32_t part = -1, parts = -1;
};

}  // namespace grapevine
