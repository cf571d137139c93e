// read_up_to: files that a user names and that may be larger than they ought to be.
#pragma once
#include <algorithm>
#include <cstddef>
#include <istream>
#include <string>

namespace grapevine {

// The rest of `in`; of more than `most` bytes the first `most` + 1.
inline std::string read_up_to(std::istream& in, std::size_t most) {
  constexpr std::size_t kFirst = 4096;
  std::string text;
  // Most files are far smaller than they may be: memory grows with what there is.
  while (in && text.size() <= most) {
    const std::size_t had = text.size();
    text.resize(had + std::min(std::max(had, kFirst), most + 1 - had));
    in.read(&text[had], static_cast<std::streamsize>(text.size() - had));
    text.resize(had + static_cast<std::size_t>(in.gcount()));
  }
  return text;
}

}  // namespace grapevine
