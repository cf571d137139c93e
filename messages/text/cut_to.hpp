// A text that is too long for its place.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string>

namespace grapevine {

// `text` in at most `bytes` bytes, or in the three of "…" where those are more: the beginning of a
// longer one, not cut within a character of UTF-8, and "…".
inline std::string cut_to(std::string text, std::size_t bytes) {
  constexpr char kCut[] = "…";
  if (text.size() <= bytes) return text;
  std::size_t end = bytes - std::min(bytes, sizeof kCut - 1);
  const auto continues = [&text](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (end > 0 && continues(end)) --end;
  text.resize(end);
  return text + kCut;
}

}  // namespace grapevine
