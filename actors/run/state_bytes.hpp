// A StateDict as bytes: the dict that torch.load reads.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace c10 {
struct IValue;
}

namespace grapevine {

// A pickled dict[str, tensor | float | int | uint8 tensor]; text is stored under "text:<name>",
// because it may hold any bytes and pickled text may not. Tensors on a device are copied to the
// host's memory (StateDict::on_host).
std::vector<char> to_bytes(const StateDict& state);
// The same bytes in parts: see pickle_dict_in_chunks().
std::vector<FrozenTensor> to_chunks(const StateDict& state, std::int64_t chunk_bytes);
// Also of files that torch::pickle_save wrote. Errors (bad_input): the bytes are no such dict.
Expected<StateDict> from_bytes(const std::vector<char>& bytes);
// The state in a dict that was unpickled. Throws std::exception where it is no such dict.
StateDict state_in(const c10::IValue& dict);

}  // namespace grapevine
