#include "actors/cluster/node_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace grapevine {

std::string counted(std::int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

Expected<std::vector<NodeShare>> lay_out(const std::vector<std::int32_t>& slots,
                                         std::int32_t processes) {
  const std::int64_t all = std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
  if (processes < 0 || processes > all)
    return bad_input(
        fmt::format("--processes {}: the nodes have {}: ask for fewer or start more nodes",
                    processes, counted(all, "slot")));
  const auto wanted = processes == 0 ? static_cast<std::int32_t>(all) : processes;
  std::vector<NodeShare> shares;
  std::int32_t placed = 0;
  for (std::size_t node = 0; node < slots.size() && placed < wanted; ++node) {
    const std::int32_t count = std::min(slots[node], wanted - placed);
    if (count > 0) shares.push_back({node, placed, count});
    placed += count;
  }
  return shares;
}

}  // namespace grapevine
