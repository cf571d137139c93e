#include "algorithms/graphs/topology_type.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {
namespace {

std::vector<TopologyType>& all_registered() {
  static std::vector<TopologyType> types;
  return types;
}

}  // namespace

const std::vector<TopologyType>& registered_topologies() { return all_registered(); }

const TopologyType* registered_topology(const std::string& name) {
  for (const TopologyType& type : all_registered())
    if (type.name == name) return &type;
  return nullptr;
}

Expected<void> register_topology(TopologyType type) {
  const std::vector<std::string> known = topology_names();
  if (std::find(known.begin(), known.end(), type.name) != known.end())
    return bad_input("topology '" + type.name + "' exists already: choose another name");
  if (type.name.find(':') != std::string::npos)
    return bad_input("topology '" + type.name +
                     "': a name with a colon is that of a graph with an argument: choose another");
  all_registered().push_back(std::move(type));
  return {};
}

}  // namespace grapevine
