// Dicts of tensors and numbers as files that torch.load reads.
#pragma once
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// A zip archive like that of torch.save: torch.load reads it, also with weights_only=True (the
// default of PyTorch 2.6 and newer), and so does torch::pickle_load. torch::pickle_save is not
// enough: it notes the type of every dict by a function that weights_only refuses to call.
// `dict`: a dict of text to tensors, numbers and text. Throws c10::Error where a tensor cannot be
// copied to the CPU.
std::vector<char> pickle_dict(const at::IValue& dict);
// The same bytes in tensors of `chunk_bytes` each, the last one shorter, without a further copy of
// them: parts to send. REQUIRES: chunk_bytes > 0.
std::vector<FrozenTensor> pickle_dict_in_chunks(const at::IValue& dict, std::int64_t chunk_bytes);

}  // namespace grapevine
