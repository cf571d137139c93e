// Wirings whose ranks may be lost and may join, as tests run them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace sim {

inline constexpr std::int64_t kChangingDimension = 9;
inline constexpr double kChangingRate = 0.05;

inline WorldConfig changing_config(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.horizon = {24, 6};
  config.horizon.by_samples = seed % 2 == 0;
  // Then the end moves, and at the one of the start exchanges are due that are not on schedule.
  if (config.horizon.by_samples) config.horizon.steps = 25;
  config.dimension = kChangingDimension;
  config.lr = kChangingRate;
  config.optimizer.momentum = 0;
  return config;
}

// Every shipped preset without servers that can, and what changes how its role exchanges.
inline std::vector<Keys> changing_wirings() {
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.3"}};
  const auto aggregate = [](const Keys& keys) {
    return operator+({{"exchange", "aggregate"}}, keys);
  };
  const auto gossip = [](const Keys& keys) { return operator+({{"exchange", "gossip"}}, keys); };
  const auto partial = [](const Keys& keys) { return operator+({{"exchange", "partial"}}, keys); };
  std::vector<Keys> all = {
      aggregate({{"overlap", "true"}}),
      aggregate({{"all_reduce", "direct"}}),
      aggregate({{"all_reduce", "ring"}}),
      aggregate({{"all_reduce", "ring"}, {"bucket_bytes", "12"}}),
      aggregate({{"bucket_bytes", "8"}, {"all_reduce", "direct"}}),
      aggregate({{"all_reduce", "direct"}, {"overlap", "true"}}),
      aggregate({{"all_reduce", "auto"}}),
      aggregate({{"all_reduce", "doubling"}, {"bucket_bytes", "8"}}),
      partial({{"activation", "quorum"}, {"quorum", "2"}, {"all_reduce", "direct"}}),
      aggregate(operator+({{"overlap", "true"}}, top_k)),
      aggregate({{"pack", "model"}, {"local_steps", "3"}}),
      aggregate({{"pack", "model"}, {"local_steps", "3"}, {"overlap", "true"}}),
      aggregate({{"pack", "model"}, {"local_steps", "3"}, {"compress", "fp16"}}),
      aggregate({{"pack", "difference"}, {"local_steps", "2"}, {"overlap", "true"}}),
      aggregate(operator+({{"pack", "difference"}, {"local_steps", "2"}}, top_k)),
      aggregate({{"compress", "int8"}}),
      aggregate({{"compress", "int8"}, {"error_feedback", "false"}}),
      aggregate(operator+({{"error_feedback", "false"}}, top_k)),
      gossip({{"overlap", "true"}, {"staleness", "3"}, {"peers", "2"}}),
      gossip({{"overlap", "true"}, {"local_steps", "3"}}),
      gossip({{"overlap", "true"}, {"staleness", "2"}, {"running_sums", "true"}}),
      gossip({{"tracking", "true"}}),
      gossip(operator+({{"tracking", "true"}, {"averaging", "symmetric"}}, top_k)),
      gossip({{"tracking", "true"}, {"overlap", "true"}, {"local_steps", "2"}}),
      gossip(operator+({{"overlap", "true"}, {"staleness", "2"}}, top_k)),
      gossip(operator+
             ({{"averaging", "symmetric"}, {"overlap", "true"}, {"staleness", "2"}}, top_k)),
      gossip({{"averaging", "symmetric"}, {"topology", "ring"}, {"update", "after"}}),
      gossip(operator+({{"averaging", "symmetric"}, {"topology", "ring"}}, top_k)),
      gossip(top_k),
      gossip({{"pack", "difference"}, {"local_steps", "2"}, {"outer", "nesterov"}}),
      {{"exchange", "bilateral"},
       {"topology", "bipartite-exponential"},
       {"compress", "top-k"},
       {"density", "0.3"}},
      partial({{"activation", "majority"}}),
      partial(operator+({{"activation", "solo"}}, top_k)),
      partial({{"activation", "quorum"},
               {"quorum", "2"},
               {"pack", "difference"},
               {"local_steps", "2"}}),
      partial({{"activation", "quorum"}, {"quorum", "3"}}),
      partial({{"activation", "quorum"},
               {"quorum", "2"},
               {"pack", "difference"},
               {"local_steps", "0:1,1:4"}}),
      {{"exchange", "group"}, {"staleness", "4"}, {"local_steps", "2"}},
      {{"exchange", "group"}, {"group_size", "3"}},
      {{"exchange", "group"}, {"activation", "solo"}, {"local_steps", "0:4,1:1"}},
      {{"exchange", "group"}, {"activation", "solo"}, {"local_steps", "0:1,1:4"}},
  };
  for (const Preset& preset : presets()) {
    const Keys keys = keys_of(preset.name);
    if (preset.name != kCustomWiring && changes_ranks(plan_of(keys))) all.push_back(keys);
  }
  return all;
}

// Clients and their servers.
inline std::vector<Keys> changing_servers() {
  const auto server = [](const Keys& keys) { return operator+({{"exchange", "server"}}, keys); };
  std::vector<Keys> all = {
      server({{"servers", "2"}}),
      server({{"section", "relaxed"}}),
      server({{"rule", "downpour"}, {"local_steps", "3"}, {"servers", "2"}}),
      server({{"rule", "downpour"}, {"overlap", "true"}}),
      server({{"rule", "downpour"}, {"compress", "top-k"}, {"density", "0.3"}}),
      server({{"rule", "adaptive"}}),
      server({{"rule", "downpour"}, {"local_steps", "0:1,1:4"}}),
      server({{"rule", "easgd"}, {"local_steps", "2"}, {"synchronous", "true"}}),
      server({{"rule", "easgd"}, {"overlap", "true"}}),
      server({{"rule", "delayed-nesterov"}, {"local_steps", "2"}}),
  };
  for (const Preset& preset : presets())
    if (preset.name != kCustomWiring && plan_of(keys_of(preset.name)).servers > 0)
      all.push_back(keys_of(preset.name));
  return all;
}

inline std::vector<Keys> wirings_of_changing_members() {
  std::vector<Keys> all = changing_wirings();
  for (const Keys& keys : changing_servers()) all.push_back(keys);
  return all;
}

inline std::string name_of(const Keys& keys) {
  std::string name;
  for (const auto& [key, value] : keys) name += key + "=" + value + " ";
  return name;
}

// What came of the gradients of a rank.
inline std::map<EventKind, std::int64_t> counts_of(const RoleWorld& world, Rank rank) {
  std::map<EventKind, std::int64_t> counts;
  for (const Event& event : world.events(rank)) ++counts[event.kind];
  return counts;
}

}  // namespace sim
}  // namespace grapevine
