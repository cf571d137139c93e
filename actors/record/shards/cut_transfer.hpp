// Transfers of states for checkpoints: how their parts are told from those of other states.
#pragma once
#include <cstdint>

#include "messages/protocol.hpp"

namespace grapevine {

// The transfer of a StateChunk that belongs to a checkpoint is minus the number of its cut. Other
// chunks belong to changes of members, or to models.
inline std::int64_t transfer_of_cut(std::int64_t cut) { return -cut; }
inline bool is_of_cut(const StateChunk& chunk) { return chunk.transfer < 0; }
inline std::int64_t cut_of(const StateChunk& chunk) { return -chunk.transfer; }

}  // namespace grapevine
