// What a program adds to the engine, in a process of its own: a role, a compressor, a topology, a
// preset, a model and a data set are registered before the first wiring is read, and appear
// wherever the shipped ones do.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/graphs/gossip_graph.hpp"
#include "algorithms/graphs/topology_type.hpp"
#include "algorithms/kernels/packed_error.hpp"
#include "algorithms/lockstep/conformance.hpp"
#include "algorithms/roles/aggregate/aggregate.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/topology/topology_command.hpp"
#include "apps/wiring/wiring_command.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "tests/apps/verb_runner.hpp"

namespace grapevine {
namespace outside_parts_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// Every number as a whole multiple of 2^-fine, in 16 bits.
class Grid final : public Compressor {
 public:
  explicit Grid(double fine) : unit_(std::exp2(-fine)) {}
  bool unbiased() const override { return false; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return 2 * static_cast<std::uint64_t>(d);
  }
  Packed pack(const at::Tensor& x, double, Rng&) const override {
    return {{}, FrozenTensor::freeze((x / unit_).round().to(at::kHalf)), {}};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    if (packed.indices.defined() || packed.scales.defined() ||
        !is_flat_tensor(packed.values, at::kHalf, x.numel()))
      return bad_packed("it is not of " + std::to_string(x.numel()) + " points of a grid");
    x.add_(packed.values.read().to(at::kFloat), factor * unit_);
    return {};
  }

 private:
  const double unit_;
};

const CompressorType& grid_compressor() {
  static const CompressorType type = [] {
    CompressorType grid;
    grid.name = "grid";
    grid.read = [](KeyReader& keys, CompressionSettings& c) {
      c.own["fine"] = keys.number("fine", 8, {0, 12}, "the binary digits behind the point");
    };
    grid.make = [](const CompressionSettings& c) {
      return std::make_unique<Grid>(c.own.at("fine"));
    };
    grid.consensus_step = [](const CompressionSettings&) { return 0.75; };
    return grid;
  }();
  return type;
}

// It says of itself that it sends single entries.
const CompressorType& false_type() {
  static const CompressorType type = [] {
    CompressorType lying;
    lying.name = "lying";
    lying.sparse = true;
    lying.make = [](const CompressionSettings&) { return std::make_unique<Grid>(8); };
    return lying;
  }();
  return type;
}

// Aggregate under another name, with a key of its own.
const RoleType& renamed_role() {
  static const RoleType type = [] {
    RoleType role = aggregate_role();
    role.name = "renamed";
    role.read = [](KeyReader& keys, Plan& plan) {
      aggregate_role().read(keys, plan);
      keys.flag("loudly", false, "no difference");
    };
    return role;
  }();
  return type;
}

TopologyType rank_zero_gives() {
  TopologyType type;
  type.name = "rank-zero-gives";
  type.peers = "the destinations of rank 0, at most all";
  type.make = [](std::int32_t ranks,
                 std::int32_t peers) -> Expected<std::shared_ptr<const Topology>> {
    Topology::Lists lists(static_cast<std::size_t>(ranks));
    for (Rank rank = 1; rank < std::min(ranks, peers + 1); ++rank) lists[0].push_back(rank);
    return std::make_shared<const Topology>("rank-zero-gives", ranks, peers,
                                            std::vector<Topology::Edges>{lists});
  };
  return type;
}

Expected<void> register_all() {
  for (auto added :
       {register_role(renamed_role()), register_compressor(grid_compressor()),
        register_compressor(false_type()), register_topology(rank_zero_gives()),
        register_model("my-net",
                       [](const DataInfo&info) { return make_model_factory("linear", info); }),
        register_data_set("my-data", [](const std::string&path, const DataOptions&o) {
          return make_data_set("hyperplane:" + path, o);
        })})
    if (!added) return added;
  return register_preset("mine", "A preset of its own", "nobody 2026",
                         "exchange=renamed loudly=true");
}

class OutsideParts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const Expected<void> added = register_all();
    ASSERT_TRUE(added.ok()) << added.error().message;
  }
  const testing_apps::VerbRunner wiring_{make_wiring_command};
  const testing_apps::VerbRunner topology_{make_topology_command};
};

Wiring wiring_of(const std::vector<std::pair<std::string, std::string>>& keys) {
  Wiring wiring;
  for (const auto& [key, value] : keys) EXPECT_TRUE(wiring.set(key, value).ok()) << key;
  return wiring;
}

std::string refusal_of(const Wiring& wiring) {
  const auto plan = resolve(wiring);
  return plan ? "accepted" : plan.error().message;
}

TEST_F(OutsideParts, ATakenNameIsRefused) {
  const auto message = [](const Expected<void>& added) {
    return added ? "accepted" : added.error().message;
  };
  TopologyType ring = rank_zero_gives(), argument = rank_zero_gives();
  ring.name = "ring";
  argument.name = "mine:3";
  const ModelMaker model = [](const DataInfo& info) { return make_model_factory("mlp", info); };
  const DataSetMaker data = [](const std::string&, const DataOptions& o) {
    return make_data_set("noise", o);
  };
  EXPECT_EQ(message(register_role(renamed_role())),
            "role 'renamed' exists already: choose another name");
  static const RoleType other_aggregate = aggregate_role();
  static const CompressorType other_top_k = top_k_compressor();
  EXPECT_EQ(message(register_role(other_aggregate)),
            "role 'aggregate' exists already: choose another name");
  EXPECT_EQ(message(register_compressor(grid_compressor())),
            "compressor 'grid' exists already: choose another name");
  EXPECT_EQ(message(register_compressor(other_top_k)),
            "compressor 'top-k' exists already: choose another name");
  EXPECT_EQ(message(register_topology(rank_zero_gives())),
            "topology 'rank-zero-gives' exists already: choose another name");
  EXPECT_EQ(message(register_topology(ring)),
            "topology 'ring' exists already: choose another name");
  EXPECT_THAT(message(register_topology(argument)), HasSubstr("colon"));
  for (const std::string taken : {"mine", "osgp", kCustomWiring})
    EXPECT_EQ(message(register_preset(taken, "", "", "")),
              "preset '" + taken + "' exists already: choose another name");
  for (const std::string wrong : {"quorum=2", "exchange", "loudyl=true", "exchange=renmaed"})
    EXPECT_THAT(message(register_preset("other", "", "", wrong)), HasSubstr("preset 'other': "));
  for (const char* taken : {"linear", "my-net"})
    EXPECT_THAT(message(register_model(taken, model)), HasSubstr("exists already"));
  for (const char* taken : {"glyphs", "my-data"})
    EXPECT_THAT(message(register_data_set(taken, data)), HasSubstr("exists already"));
  EXPECT_THAT(message(register_data_set("my:data", data)), HasSubstr("colon"));
}

TEST_F(OutsideParts, KeysAppearWithTheirPlaces) {
  const auto keys = nlohmann::json::parse(wiring_.output("keys --json"));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& key : keys) by_name[key["key"]] = key;
  EXPECT_THAT(by_name["exchange"]["values"].get<std::string>(), HasSubstr("server | renamed"));
  EXPECT_THAT(by_name["compress"]["values"].get<std::string>(), HasSubstr("sign | grid"));
  EXPECT_EQ(by_name["loudly"]["counts_where"], "exchange: renamed");
  EXPECT_THAT(by_name["fine"]["counts_where"].get<std::string>(), HasSubstr("compress: grid"));
  EXPECT_THAT(by_name["density"]["counts_where"].get<std::string>(),
              HasSubstr("compress: top-k, random-k, lying"));
}

TEST_F(OutsideParts, PresetsAreListedAndShown) {
  EXPECT_THAT(wiring_.output("list"), HasSubstr("A preset of its own"));
  EXPECT_THAT(wiring_.output("show mine"), HasSubstr("loudly = true"));
  EXPECT_EQ(wiring_.output("check mine --ranks 3 --conformance"),
            "mine: valid, exchange = 'renamed'\n");
  EXPECT_THAT(wiring_.output("show mine --dot"), HasSubstr("peer0 -> peer1 [label=\"chunk"));
}

TEST_F(OutsideParts, ErrorsGuessTheName) {
  EXPECT_THAT(refusal_of(wiring_of({{"exchange", "renmaed"}})),
              HasSubstr("did you mean 'renamed'?"));
  EXPECT_THAT(refusal_of(wiring_of({{"compress", "gird"}})), HasSubstr("did you mean 'grid'?"));
  EXPECT_THAT(refusal_of(wiring_of({{"exchange", "gossip"}, {"topology", "rank-zero-givse"}})),
              HasSubstr("did you mean 'rank-zero-gives'?"));
  EXPECT_EQ(
      refusal_of(wiring_of({{"fine", "4"}})),
      "wiring.fine = '4' does not fit compress = 'none': it belongs to grid, choose compress = "
      "'grid'");
  EXPECT_THAT(refusal_of(wiring_of({{"compress", "grid"}, {"density", "0.1"}})),
              HasSubstr("does not fit compress = 'grid'"));
  EXPECT_THAT(make_data_set("my-dtaa", {}).error().message, HasSubstr("did you mean 'my-data'?"));
}

TEST_F(OutsideParts, ACompressorServesEveryRoleThatCompresses) {
  ConformanceOptions few;
  few.ranks = {2, 3};
  for (const auto& keys : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {{"exchange", "aggregate"}, {"fine", "6"}},
           {{"exchange", "partial"}},
           {{"exchange", "gossip"}, {"averaging", "symmetric"}},
           {{"exchange", "server"}, {"rule", "downpour"}}}) {
    Wiring wiring = wiring_of({{"compress", "grid"}});
    for (const auto& [key, value] : keys) ASSERT_TRUE(wiring.set(key, value).ok());
    EXPECT_THAT(check_conformance(wiring, few), IsEmpty()) << keys.front().second;
  }
  const auto gossip = resolve(
      wiring_of({{"compress", "grid"}, {"exchange", "gossip"}, {"averaging", "symmetric"}}));
  ASSERT_TRUE(gossip.ok()) << gossip.error().message;
  EXPECT_EQ(gossip->compression.consensus_step, 0.75);
}

TEST_F(OutsideParts, ACompressorThatIsNotAsItsTypeSaysIsFound) {
  EXPECT_THAT(check_conformance(wiring_of({{"compress", "lying"}})),
              Contains(HasSubstr("compressor 'lying' is not as sparse as its type says")));
}

TEST_F(OutsideParts, TheCheckOfAWiringPrintsTheBrokenPromises) {
  const std::string path = testing::TempDir() + "lying.toml";
  std::ofstream(path) << "[wiring]\nexchange = \"aggregate\"\ncompress = \"lying\"\n";
  const auto checked = wiring_.run("check " + path + " --ranks 3 --conformance");
  ASSERT_FALSE(checked.result.ok());
  EXPECT_EQ(checked.result.error().code, Errc::failed);
  EXPECT_THAT(checked.result.error().message, HasSubstr("2 violations, printed above"));
  EXPECT_THAT(checked.out, HasSubstr("3 ranks, 13 parameters: "));
}

TEST_F(OutsideParts, TopologiesAreShownAndChecked) {
  const auto shown =
      nlohmann::json::parse(topology_.output("rank-zero-gives --ranks 3 --peers 1 --json"));
  EXPECT_EQ(shown["rounds"], nlohmann::json::parse("[[[1],[],[]]]"));
  CLI::App app;
  make_topology_command()->declare(app);
  EXPECT_THAT(app.help(),
              HasSubstr("rank-zero-gives (peers: the destinations of rank 0, at most all)"));
  const Wiring one_way = wiring_of({{"exchange", "gossip"}, {"topology", "rank-zero-gives"}});
  EXPECT_EQ(refusal_of(one_way), "accepted");
  EXPECT_THAT(check_conformance(one_way), IsEmpty()) << "with one rank";
  ConformanceOptions two;
  two.ranks = {2};
  EXPECT_THAT(check_conformance(one_way, two), testing::ElementsAre(HasSubstr("has no path")));
}

TEST_F(OutsideParts, ModelsAndDataAreFoundByName) {
  const auto data = make_data_set("my-data:5", {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ((*data)->info().sample_shape, std::vector<std::int64_t>{5});
  EXPECT_TRUE(make_model_factory("my-net", (*data)->info()).ok());
  EXPECT_THAT(model_names(), Contains("my-net"));
  EXPECT_THAT(data_names(), Contains("my-data"));
}

}  // namespace outside_parts_test
}  // namespace grapevine
