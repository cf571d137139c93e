#include "apps/trace/run_layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

namespace grapevine {
namespace {

constexpr double kMostGraceSeconds = 1e6;

// Of all levels: a key of a level has its number before the name.
std::int64_t grace_of(const std::map<std::string, std::string>& wiring) {
  double most = 0;
  const std::string name = "grace";
  for (const auto& [key, value] : wiring) {
    const bool ends_so =
        key.size() >= name.size() && key.compare(key.size() - name.size(), name.size(), name) == 0;
    if (ends_so) most = std::max(most, std::strtod(value.c_str(), nullptr));
  }
  return static_cast<std::int64_t>(std::min(most, kMostGraceSeconds) * 1e9);
}

}  // namespace

RunLayout layout_of(const MergedTrace& trace) {
  RunLayout layout;
  layout.workers = trace.workers();
  layout.servers = trace.servers();
  layout.pauses = trace.pauses();
  layout.sampled = trace.sampled();
  std::map<std::string, std::int32_t> hosts;
  for (Rank rank = 0; rank < trace.ranks(); ++rank) {
    const std::int32_t process = trace.process_of(rank);
    layout.process_of.push_back(process);
    if (process < 0) {
      layout.host_of.push_back(-1);
      continue;
    }
    const TraceHeader& header = trace.header(process);
    const auto number = static_cast<std::int32_t>(hosts.size());
    layout.host_of.push_back(hosts.emplace(header.host + '\n' + header.boot, number).first->second);
    layout.grace_ns = std::max(layout.grace_ns, grace_of(header.wiring));
  }
  return layout;
}

}  // namespace grapevine
