#include "actors/cluster/output/line_parts.hpp"

#include <utility>

namespace grapevine {

void split_line(const std::string& line, const OnPart& on_part) {
  std::size_t begin = 0;
  for (; line.size() - begin > kLongestOutputLine; begin += kLongestOutputLine)
    on_part(line.substr(begin, kLongestOutputLine), true);
  on_part(line.substr(begin), false);
}

std::optional<std::string> LineJoiner::add(std::string part, bool continues) {
  if (line_.empty())
    line_ = std::move(part);
  else
    line_ += part;
  if (continues && line_.size() < longest_) return std::nullopt;
  return std::exchange(line_, std::string());
}

std::optional<std::string> LineJoiner::take_rest() {
  if (line_.empty()) return std::nullopt;
  return std::exchange(line_, std::string());
}

}  // namespace grapevine
