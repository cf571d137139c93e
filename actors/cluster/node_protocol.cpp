#include "actors/cluster/node_protocol.hpp"

#include <fmt/format.h>

namespace grapevine {

Expected<void> check_length(const std::vector<std::string>& arguments) {
  const std::size_t bytes = bytes_of(arguments);
  if (bytes <= kMostArgumentBytes) return {};
  return bad_input(
      fmt::format("the options of the job have {} bytes together, and a job of nodes has at most "
                  "{}: give fewer of them, or shorter values",
                  bytes, kMostArgumentBytes));
}

}  // namespace grapevine
