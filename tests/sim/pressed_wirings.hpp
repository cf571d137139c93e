// Wirings of every role and part, with numbers that do not divide each other: for properties that
// must hold whatever ranks exchange, and in whatever state a slow, stalled or dead rank leaves
// them.
#pragma once
#include <string>
#include <vector>

#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine::sim {

struct PressedWiring {
  std::string name;  // letters and digits: part of a test's name
  Keys keys;
  std::int32_t ranks = 5;  // that train
  double momentum = 0.9;
  std::string optimizer = "sgd";

  Plan plan() const { return plan_of(keys); }
  // Whether the worker reads the model as it is when the gradient comes: in the others it may have
  // changed since the gradient was asked for, and a gradient that is asked for again is another.
  bool model_waits_for_the_gradient() const {
    return !is_role(plan(), "bilateral") && !is_role(plan(), "partial");
  }
  bool survives_a_death() const {
    const Plan plan = this->plan();
    return plan.hierarchy == 1 && plan.role->tolerates_lost_peer;
  }
};

inline std::vector<PressedWiring> pressed_aggregates() {
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.1"}, {"density_warmup", "0.5,0.25"}};
  const Keys differences = {{"pack", "difference"}, {"local_steps", "3"}, {"outer", "nesterov"}};
  return {{"Ring", {{"exchange", "aggregate"}, {"all_reduce", "ring"}}},
          {"Direct", {{"exchange", "aggregate"}, {"all_reduce", "direct"}}},
          {"RingInBuckets", {{"all_reduce", "ring"}, {"bucket_bytes", "16"}}},
          {"DirectInBuckets", {{"all_reduce", "direct"}, {"bucket_bytes", "12"}, {"clip", "0.5"}}},
          {"Auto", {{"exchange", "aggregate"}, {"all_reduce", "auto"}}},
          {"AutoInBuckets", {{"all_reduce", "auto"}, {"bucket_bytes", "12"}}},
          {"Doubling", {{"exchange", "aggregate"}, {"all_reduce", "doubling"}}, 6},
          {"RingOfAdam", {{"exchange", "aggregate"}, {"all_reduce", "ring"}}, 5, 0, "adam"},
          {"ClippedRing", {{"all_reduce", "ring"}, {"clip", "0.5"}, {"clip_at", "local"}}},
          {"LocalModels", {{"pack", "model"}, {"local_steps", "3"}}},
          {"LocalDifferences", differences},
          {"SlowMo", {{"pack", "difference"}, {"local_steps", "3"}, {"outer", "slowmo"}}},
          {"SparseLoCo",
           Keys{{"pack", "difference"}, {"local_steps", "3"}, {"residual_decay", "0.9"}} + top_k},
          {"TopK", top_k},
          {"TopKReselected", top_k + Keys{{"sparse_reduce", "all-gather-reselect"}}},
          {"TopKTree", top_k + Keys{{"sparse_reduce", "tree"}}, 6},
          {"TopKButterfly", top_k + Keys{{"sparse_reduce", "butterfly"}, {"value_type", "f16"}}, 6},
          {"TopKWithMomentum", top_k + Keys{{"momentum_correction", "true"}}},
          {"TopKPerLayer", top_k + Keys{{"per_layer", "true"}, {"sparse_reduce", "tree"}}},
          {"TopKOfDifferences", differences + top_k},
          {"RandomK", {{"compress", "random-k"}, {"density", "0.3"}}},
          {"Int8", {{"compress", "int8"}}},
          {"Sign", {{"compress", "sign"}}},
          {"HalfWithoutFeedback", {{"compress", "fp16"}, {"error_feedback", "false"}}, 4},
          {"OverlappedGradients", {{"overlap", "true"}}},
          {"OverlappedModels", {{"pack", "model"}, {"local_steps", "3"}, {"overlap", "true"}}},
          {"OverlappedDifferences", differences + Keys{{"overlap", "true"}, {"compress", "int8"}}},
          {"LocalStepsBySchedule", {{"pack", "model"}, {"local_steps", "0:1,1:3,3:2"}}},
          {"HalfModels", {{"pack", "model"}, {"local_steps", "2"}, {"compress", "bf16"}}}};
}

inline std::vector<PressedWiring> pressed_partials() {
  const Keys partial = {{"exchange", "partial"}};
  const Keys quorum = partial + Keys{{"activation", "quorum"}, {"quorum", "3"}};
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.2"}};
  return {{"Solo", partial + Keys{{"activation", "solo"}, {"staleness", "2"}}},
          {"Majority", partial},
          {"Quorum", quorum},
          {"QuorumOfActive", quorum + Keys{{"scale", "active"}, {"staleness", "1"}}},
          {"QuorumTopKTree", quorum + top_k + Keys{{"sparse_reduce", "tree"}}},
          {"SoloTopKButterfly",
           partial + top_k + Keys{{"activation", "solo"}, {"sparse_reduce", "butterfly"}}},
          {"ClippedSolo",
           partial + Keys{{"activation", "solo"}, {"clip", "0.5"}, {"clip_at", "local"}}},
          {"MajorityInt8", partial + Keys{{"compress", "int8"}}},
          {"DecoupledDiLoCo", quorum + Keys{{"pack", "difference"},
                                            {"local_steps", "3"},
                                            {"outer", "nesterov"},
                                            {"scale", "samples"},
                                            {"all_reduce", "ring"},
                                            {"grace", "0.00000004"}}},
          {"SoloDifferencesTopK",
           partial + top_k +
               Keys{{"activation", "solo"}, {"pack", "difference"}, {"local_steps", "2"}}}};
}

inline std::vector<PressedWiring> pressed_gossip() {
  const Keys gossip = {{"exchange", "gossip"}};
  const Keys overlap = gossip + Keys{{"overlap", "true"}};
  const Keys sums = overlap + Keys{{"running_sums", "true"}};
  const Keys symmetric = gossip + Keys{{"averaging", "symmetric"}};
  const Keys after = symmetric + Keys{{"update", "after"}};
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.3"}};
  const Keys outer = {{"pack", "difference"}, {"outer", "momentum"}, {"outer_momentum", "0.5"}};
  return {
      {"Sgp", gossip},
      {"SgpPeersChange", gossip + Keys{{"peers", "0:1,1:2,2:1"}}},
      {"SgpStarLocalSteps", gossip + Keys{{"topology", "star"}, {"local_steps", "3"}}},
      {"SgpBiased", gossip + Keys{{"averaging", "biased"}}},
      {"Osgp", overlap},
      {"OsgpTau2", overlap + Keys{{"staleness", "2"}}},
      {"OsgpTau3PeersChange", overlap + Keys{{"staleness", "3"}, {"peers", "0:1,1:3"}}},
      {"OsgpLocalSteps", overlap + Keys{{"local_steps", "2"}}},
      {"RunningSums", sums},
      {"RunningSumsTau2PeersChange", sums + Keys{{"staleness", "2"}, {"peers", "0:1,1:3"}}},
      {"RunningSumsStarLocalSteps",
       sums + Keys{{"topology", "star"}, {"local_steps", "3"}, {"staleness", "1"}}},
      {"RunningSumsSlowMo",
       sums + Keys{{"pack", "difference"}, {"outer", "slowmo"}, {"local_steps", "2"}}},
      {"SymmetricTau2", symmetric + Keys{{"overlap", "true"}, {"staleness", "2"}}},
      {"DPsgd", after},
      {"DPsgdStar", after + Keys{{"topology", "star"}}},
      {"ChocoTopK", after + top_k},
      {"ChocoTopKPeersChange", symmetric + top_k + Keys{{"peers", "0:1,1:2"}}},
      {"ChocoInt8Ring", symmetric + Keys{{"compress", "int8"}, {"topology", "ring"}}},
      {"ChocoRandomKWithoutFeedback",
       after + Keys{{"compress", "random-k"}, {"density", "0.4"}, {"error_feedback", "false"}}},
      {"ChocoTopKLocalSteps", symmetric + top_k + Keys{{"local_steps", "3"}}},
      {"ChocoTopKAfterLocalSteps", after + top_k + Keys{{"local_steps", "3"}}},
      {"ChocoOverlap", symmetric + Keys{{"overlap", "true"}, {"compress", "int8"}}},
      {"ChocoOverlapLocalSteps",
       symmetric + top_k + Keys{{"overlap", "true"}, {"local_steps", "2"}, {"peers", "0:1,1:2"}}},
      {"ClippedOsgp", overlap + Keys{{"clip", "0.3"}}},
      {"BilateralLocalSteps",
       {{"exchange", "bilateral"},
        {"topology", "bipartite-exponential"},
        {"local_steps", "3"},
        {"clip", "0.5"}},
       6},
      {"Bilateral", {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}}, 6},
      {"BilateralTwoPeers",
       {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}, {"peers", "2"}},
       6},
      {"BilateralPeersChange",
       {{"exchange", "bilateral"}, {"topology", "bipartite-linear"}, {"peers", "0:1,1:3"}},
       8},
      {"BilateralGrid", {{"exchange", "bilateral"}, {"topology", "grid2d"}}, 5},
      {"BilateralInt8",
       {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}, {"compress", "int8"}},
       6},
      {"BilateralDifferences",
       Keys{
           {"exchange", "bilateral"}, {"topology", "bipartite-exponential"}, {"local_steps", "2"}} +
           outer,
       6},
      {"NoLoCo", symmetric + outer + Keys{{"topology", "ring"}, {"local_steps", "3"}}},
      {"OsgpSlowMo",
       overlap + Keys{{"pack", "difference"}, {"outer", "slowmo"}, {"local_steps", "2"}}},
      {"DPsgdOuterStar", after + outer + Keys{{"topology", "star"}, {"local_steps", "2"}}},
      {"SgpStarOuter", gossip + outer + Keys{{"topology", "star"}}},
      {"ChocoTau2", symmetric + top_k + Keys{{"overlap", "true"}, {"staleness", "2"}}},
      {"ChocoInt8RingTau1LocalSteps", symmetric + Keys{{"overlap", "true"},
                                                       {"staleness", "1"},
                                                       {"compress", "int8"},
                                                       {"topology", "ring"},
                                                       {"local_steps", "2"}}},
      {"PushSumTopKTau2PeersChange",
       overlap + top_k + Keys{{"staleness", "2"}, {"peers", "0:1,1:3"}}},
      {"PushSumInt8RingTau3",
       overlap + Keys{{"staleness", "3"}, {"compress", "int8"}, {"topology", "ring"}}},
      {"PushSumTopK", gossip + top_k},
      {"PushSumInt8Star", gossip + Keys{{"compress", "int8"}, {"topology", "star"}}},
      {"GradientTracking", symmetric + Keys{{"tracking", "true"}, {"topology", "ring"}}},
      {"TrackingPushSumStar", gossip + Keys{{"tracking", "true"}, {"topology", "star"}}},
      {"TrackingTopKRing", symmetric + top_k + Keys{{"tracking", "true"}, {"topology", "ring"}}},
      {"TrackingPushSumInt8", gossip + Keys{{"tracking", "true"}, {"compress", "int8"}}},
      {"TrackingTopKTau2", symmetric + top_k +
                               Keys{{"tracking", "true"},
                                    {"overlap", "true"},
                                    {"staleness", "2"},
                                    {"local_steps", "2"}}},
      {"TrackingAfter", after + Keys{{"tracking", "true"}, {"topology", "star"}}},
      {"TrackingOsgpTau1LocalSteps",
       overlap + Keys{{"tracking", "true"}, {"staleness", "1"}, {"local_steps", "2"}}},
      {"TrackingRunningSums", sums + Keys{{"tracking", "true"}, {"staleness", "1"}}},
      {"QuasiGlobal", after + Keys{{"quasi_global", "0.1"}, {"local_steps", "2"}}}};
}

inline std::vector<PressedWiring> pressed_groups() {
  const Keys group = {{"exchange", "group"}};
  return {{"GroupsOfTwo", group + Keys{{"staleness", "7"}, {"group_size", "2"}}},
          {"GroupsOfThree", group + Keys{{"staleness", "50"}, {"group_size", "3"}}, 7},
          {"GroupsLocalSteps",
           group + Keys{{"staleness", "3"}, {"group_size", "2"}, {"local_steps", "3"}}},
          {"GroupsOfAButterfly", group + Keys{{"staleness", "9"}, {"group_size", "4"}}, 8},
          {"GridOfHalves",
           group + Keys{{"groups", "grid"}, {"group_size", "3"}, {"compress", "bf16"}}, 7},
          {"GroupQuorumDifferences", group + Keys{{"activation", "quorum"},
                                                  {"grace", "0.00000004"},
                                                  {"staleness", "5"},
                                                  {"pack", "difference"},
                                                  {"outer", "nesterov"},
                                                  {"outer_momentum", "0.5"},
                                                  {"local_steps", "2"}}}};
}

inline std::vector<PressedWiring> pressed_servers() {
  const auto server = [](const std::string& rule, const std::string& servers) {
    return Keys{{"exchange", "server"}, {"rule", rule}, {"servers", servers}};
  };
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.2"}};
  return {{"Gem", server("gem", "1")},
          {"GemThreeServers", server("gem", "3")},
          {"GemRelaxed", server("gem", "2") + Keys{{"section", "relaxed"}}},
          {"GemTopK", server("gem", "2") + top_k},
          {"Downpour", server("downpour", "2"), 5, 0},
          {"DownpourWindow", server("downpour", "2") + Keys{{"local_steps", "3"}}, 5, 0},
          {"ClippedDownpour", server("downpour", "2") + Keys{{"clip", "0.5"}}, 5, 0},
          {"DownpourInt8", server("downpour", "3") + Keys{{"compress", "int8"}}, 5, 0},
          {"Adaptive", server("adaptive", "2") + Keys{{"local_steps", "2"}}, 5, 0},
          {"Agn", server("agn", "1") + Keys{{"local_steps", "4"}}, 5, 0},
          {"AgnTopK", server("agn", "2") + top_k + Keys{{"local_steps", "3"}}, 5, 0},
          {"Easgd", server("easgd", "2") + Keys{{"local_steps", "3"}}},
          {"DownpourOverlap",
           server("downpour", "2") + Keys{{"overlap", "true"}, {"compress", "int8"}}, 5, 0},
          {"EasgdOverlap", server("easgd", "2") + Keys{{"overlap", "true"}, {"local_steps", "2"}}},
          {"EasgdSynchronous", server("easgd", "2") + Keys{{"synchronous", "true"}}},
          {"DelayedNesterov",
           server("delayed-nesterov", "2") + Keys{{"local_steps", "3"}, {"outer_every", "3"}}}};
}

inline std::vector<PressedWiring> pressed_nodes() {
  const auto nodes = [](const std::string& exchange, const Keys& more, std::int32_t ranks) {
    return PressedWiring{"", Keys{{"exchange", exchange}, {"hierarchy", "2"}} + more, ranks};
  };
  std::vector<PressedWiring> all = {
      nodes("aggregate", {}, 6),
      nodes("gossip", {{"overlap", "true"}, {"staleness", "2"}}, 8),
      nodes("gossip", {{"averaging", "symmetric"}, {"compress", "sign"}}, 6),
      nodes("bilateral", {{"topology", "bipartite-exponential"}}, 8),
      nodes("partial", {{"activation", "quorum"}}, 6),
      nodes("group", {{"staleness", "7"}, {"group_size", "2"}}, 8),
      nodes("server", {{"rule", "gem"}, {"servers", "2"}}, 6)};
  const char* const names[] = {"NodesRing",    "NodesOsgp",   "NodesChoco", "NodesBilateral",
                               "NodesPartial", "NodesGroups", "NodesGem"};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].name = names[i];
  return all;
}

inline std::vector<PressedWiring> pressed_levels() {
  const auto inside = [](const std::string& level, const std::string& ranks, const Keys& keys) {
    Keys all = {{"level." + level + ".ranks", ranks}};
    for (const auto& [key, value] : keys) all.emplace_back("level." + level + "." + key, value);
    return all;
  };
  const Keys gossip = {{"exchange", "gossip"}}, local_steps = {{"local_steps", "2"}};
  const Keys differences = {
      {"pack", "difference"}, {"outer", "nesterov"}, {"outer_momentum", "0.5"}};
  return {{"LevelsRingInOsgp",
           inside("1", "2", {{"compress", "int8"}}) + gossip +
               Keys{{"overlap", "true"}, {"staleness", "2"}, {"local_steps", "3"}},
           6},
          {"LevelsSgpInDifferences",
           inside("1", "3", gossip + local_steps) + differences + Keys{{"local_steps", "4"}}, 6},
          {"LevelsDifferencesInSolo",
           inside("1", "2", differences + local_steps) +
               Keys{{"exchange", "partial"}, {"activation", "solo"}, {"staleness", "2"}},
           6},
          {"LevelsTrackingInGroups",
           inside("1", "2", gossip + Keys{{"averaging", "symmetric"}, {"tracking", "true"}}) +
               Keys{{"exchange", "group"}, {"group_size", "2"}, {"staleness", "4"}},
           8},
          {"LevelsChocoInDownpour",
           inside("1", "2", gossip + Keys{{"averaging", "symmetric"}, {"compress", "int8"}}) +
               Keys{{"exchange", "server"}, {"rule", "downpour"}, {"servers", "2"}},
           6},
          {"ThreeLevels",
           inside("1", "2", gossip + local_steps) +
               inside("2", "4", gossip + Keys{{"topology", "star"}, {"local_steps", "4"}}) +
               Keys{{"exchange", "group"}, {"group_size", "2"}, {"local_steps", "4"}},
           12}};
}

inline std::vector<PressedWiring> pressed_wirings() {
  std::vector<PressedWiring> all;
  for (const auto& list : {pressed_aggregates(), pressed_partials(), pressed_gossip(),
                           pressed_groups(), pressed_servers(), pressed_nodes(), pressed_levels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

// 22 steps: no multiple of the windows, local steps and periods above; nor of an epoch.
inline WorldConfig config_of(const PressedWiring& wiring, std::uint64_t seed) {
  WorldConfig config;
  config.plan = wiring.plan();
  if (config.plan.compression.per_layer) config.plan.compression.layers = {4, 6, 3};
  config.ranks = wiring.ranks;
  config.seed = seed;
  config.dimension = 13;
  config.horizon = {22, 6};
  config.lr = 0.05;
  config.optimizer.name = wiring.optimizer;
  config.optimizer.momentum = wiring.momentum;
  return config;
}

}  // namespace grapevine::sim
