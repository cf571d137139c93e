// Plan: a validated wiring with every default filled in; and what all ranks of a process share of a
// run.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/compressors/settings.hpp"
#include "algorithms/exchange_steps.hpp"
#include "algorithms/graphs/gossip_graph.hpp"
#include "algorithms/graphs/graph_settings.hpp"
#include "algorithms/horizon.hpp"
#include "algorithms/parts/local_update.hpp"
#include "algorithms/parts/optimizer.hpp"
#include "algorithms/schedules.hpp"
#include "messages/check.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct RoleType;

// What a role reads from its keys, or prepares for all ranks: a type of the role's own.
struct RoleData {
  virtual ~RoleData() = default;
};

// REQUIRES: `data` is a T.
template <class T>
const T& data_as(const std::shared_ptr<const RoleData>& data) {
  const auto* own = dynamic_cast<const T*>(data.get());
  GRAPEVINE_CHECK(own != nullptr, "the settings are of another role");
  return *own;
}

struct Plan {
  const RoleType* role = nullptr;
  std::shared_ptr<const RoleData> settings;  // of the role
  GraphSettings graph;                       // of roles that exchange along a topology
  LocalUpdateSettings local;
  CompressionSettings compression;
  std::int32_t servers = 0;    // ranks after the workers, each with a slice of the parameters
  std::int32_t hierarchy = 1;  // ranks per node; above 1 only one of them exchanges; 0: not known
  std::uint64_t seed = 0;      // of what all ranks draw alike: not a key
};

// Where a named tensor of the model lies in the flat one.
struct TensorSpan {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// Parts that all ranks of a process share. Constant once training runs.
struct SharedParts {
  Plan plan;
  Horizon horizon;
  LrSchedule lr;
  OptimizerConfig optimizer;
  ExchangeSteps exchanges;  // of each rank
  // Of nodes where there is a hierarchy; null where the role has no topology.
  std::shared_ptr<const GossipGraph> graph;
  std::shared_ptr<const RoleData> prepared;  // by the role, for this number of ranks; may be null
  std::vector<TensorSpan> layout = {};       // of the model, for figures; may be empty
  // After a change of members: where each, or each node of a hierarchy, was among those before; -1:
  // it joined. Else empty.
  std::vector<std::int32_t> before = {};
  // Of a role that is made of others, once ranks are lost: those that remain, ascending; else
  // empty.
  std::vector<Rank> remaining = {};

  // Whether all ranks began together, so that roles that wait for each other are in step.
  bool began_together() const { return before.empty(); }
};

}  // namespace grapevine
