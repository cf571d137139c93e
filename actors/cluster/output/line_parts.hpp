// A line of output that is too long for one message travels as several parts.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace grapevine {

// Of a message; the parts of a longer line follow each other.
inline constexpr std::size_t kLongestOutputLine = std::size_t{32} << 10;
// Of a line from its parts. Nodes end their lines at half of it.
inline constexpr std::size_t kLongestJoinedLine = std::size_t{2} << 20;

// `continues`: another part of the line follows.
using OnPart = std::function<void(std::string part, bool continues)>;
void split_line(const std::string& line, const OnPart& on_part);

// Joins the parts of a line. Not thread-safe.
class LineJoiner {
 public:
  explicit LineJoiner(std::size_t longest = kLongestJoinedLine) : longest_(longest) {}

  // The line, once it is complete or has `longest` bytes.
  std::optional<std::string> add(std::string part, bool continues);
  // The parts of a line whose last one has not arrived, and will not.
  std::optional<std::string> take_rest();

 private:
  std::size_t longest_;
  std::string line_;
};

}  // namespace grapevine
