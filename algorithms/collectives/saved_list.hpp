// Sparse vectors as checkpoint entries.
#pragma once
#include "algorithms/collectives/packed_collective.hpp"

namespace grapevine {

// Loads the entries of save_packed(to_packed(list)). Errors (bad_input): entries that are missing
// or are no sparse vector of d.
inline Expected<SparseVector> load_list(const StateDict& state, std::int64_t d) {
  const auto packed = load_packed(state, {});
  if (!packed) return packed.error();
  auto list = from_packed(*packed, d);
  if (!list)
    return bad_input(
        "a sparse vector of the saved state is damaged: resume from another checkpoint");
  return list;
}

}  // namespace grapevine
