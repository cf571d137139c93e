// Transfers of models between processes: how their parts are told from those of other states.
#pragma once
#include <cstdint>

#include "messages/protocol.hpp"

namespace grapevine {

// Of a StateChunk that is a part of a model.
inline constexpr std::int64_t kFirstModelTransfer = std::int64_t{1} << 48;
inline bool is_of_model(const StateChunk& chunk) { return chunk.transfer >= kFirstModelTransfer; }

// Bytes of an element: float32.
inline constexpr std::int64_t kModelElement = sizeof(float);
// The most elements of one part: 4 MiB.
inline constexpr std::int64_t kMostModelPart = std::int64_t{1} << 20;

}  // namespace grapevine
