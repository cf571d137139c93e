#include "actors/cluster/node_protocol.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace grapevine {

Expected<void> check_length(const std::vector<std::string>& arguments) {
  const std::size_t bytes = bytes_of(arguments);
  if (bytes <= kMostArgumentBytes) return {};
  return bad_input(
      fmt::format("the options of the job have {} bytes together, and a job of nodes has at most "
                  "{}: give fewer of them, or shorter values",
                  bytes, kMostArgumentBytes));
}

// Not within a character of UTF-8.
std::string cut_to(std::string text, std::size_t bytes) {
  constexpr char kCut[] = "…";
  if (text.size() <= bytes) return text;
  std::size_t end = bytes - std::min(bytes, sizeof kCut - 1);
  const auto continues = [&text](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (end > 0 && continues(end)) --end;
  return text.substr(0, end) + kCut;
}

}  // namespace grapevine
