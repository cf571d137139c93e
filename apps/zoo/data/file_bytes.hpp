// Whole files as bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

using Bytes = std::vector<std::uint8_t>;

// The bytes of `path`. Errors (bad_input): it is absent, a folder, a device, unreadable or
// larger than `limit`.
Expected<Bytes> read_file(const std::string& path, std::int64_t limit);

// The same, unpacked where the content is gzipped. `limit` holds for the unpacked bytes; memory
// grows with what is really there. Also an error: a gzip stream that is cut off or damaged.
Expected<Bytes> read_maybe_gzipped(const std::string& path, std::int64_t limit);

}  // namespace grapevine
