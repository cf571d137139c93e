// Where the processes of a job run: the nodes of a pool and their slots.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// "1 node", "2 nodes".
std::string counted(std::int64_t count, const std::string& thing);

// Of a node, and of all nodes of a pool together.
inline constexpr std::int32_t kMaxSlots = 4096;

// A share of a job's processes on one node.
struct NodeShare {
  std::size_t node = 0;  // index into `slots` of lay_out()
  std::int32_t first = 0, count = 0;
};

// Processes in order, node after node, each filled before the next one. `processes` = 0: one in
// every slot. Errors (bad_input): more processes than slots.
Expected<std::vector<NodeShare>> lay_out(const std::vector<std::int32_t>& slots,
                                         std::int32_t processes);

}  // namespace grapevine
