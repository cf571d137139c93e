// check_zip: whether the files in a zip archive are those that were written.
#pragma once
#include <string>

#include "apps/zoo/data/file_bytes.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Compares the entries that are stored as they are, as torch.save and TorchScript store all of
// theirs, with the CRC-32 in the archive's directory; LibTorch does not. Bytes that are no zip
// archive pass. `path`: for messages. Errors (bad_input): an entry has other bytes, or the
// directory cannot be read.
Expected<void> check_zip(const std::string& path, const Bytes& bytes);

}  // namespace grapevine
