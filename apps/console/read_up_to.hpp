// read_up_to: files that a user names and that may be larger than they ought to be.
#pragma once
#include <cstddef>
#include <istream>
#include <string>

namespace grapevine {

// The rest of `in`; of more than `most` bytes the first `most` + 1.
inline std::string read_up_to(std::istream& in, std::size_t most) {
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace grapevine
