// The mean of models of which most are in other processes.
#include "actors/run/models/model_averager.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/actors/run/models/fetched_models.hpp"

namespace grapevine {
namespace model_averager_test {

class ModelAveragerTest : public FetchedModels {
 protected:
  ModelAveragerTest() {
    averager_ =
        system_.spawn(model_averager, ModelAveragerConfig{played<SupervisorActor>(), fetcher_});
  }
  ~ModelAveragerTest() override { kill(averager_); }

  FrozenTensor vector(std::int64_t elements) {
    return elements == 0 ? FrozenTensor() : FrozenTensor::freeze(at::randn({elements}));
  }
  // Rank 0 is here, the others elsewhere; servers have slices.
  std::vector<LastModel> models(std::int32_t workers, std::int32_t servers, std::int64_t d,
                                std::int64_t b) {
    std::vector<LastModel> models;
    here_.clear();
    for (Rank rank = 0; rank < workers + servers; ++rank) {
      const bool server = rank >= workers;
      const std::int64_t own = server ? d / servers + (rank - workers < d % servers ? 1 : 0) : d;
      const FrozenTensor z = vector(own), buffers = vector(server ? 0 : b);
      here_.push_back({server, z, buffers, {}});
      if (rank == 0)
        models.push_back(here_.back());
      else
        models.push_back({server, {}, {}, offer(rank, kLastModel, z, buffers)});
    }
    return models;
  }
  void order(std::int64_t round, std::vector<LastModel> models) {
    self_->send(averager_, AverageModels{round, std::move(models)});
    settle();
  }
  std::optional<AveragedModels> answer() {
    settle();
    std::optional<AveragedModels> came;
    while (self_->has_next_message())
      self_->receive([&](AveragedModels& averaged) { came = averaged; }, [](Progress) {});
    return came;
  }
  void expect_mean(const AveragedModels& averaged, const std::vector<LastModel>& here) {
    const AveragedModels expected = average_here(here);
    EXPECT_TRUE(at::equal(averaged.z.read(), expected.z.read()));
    ASSERT_EQ(averaged.buffers.numel(), expected.buffers.numel());
    if (expected.buffers.defined()) {
      EXPECT_TRUE(at::equal(averaged.buffers.read(), expected.buffers.read()));
    }
    EXPECT_EQ(averaged.consensus_distance, expected.consensus_distance);
  }

  ModelAveragerActor averager_;
  std::vector<LastModel> here_;  // the same models, all in this process
};

// Bit for bit, in any order of arrival; memory is that of a slice of each rank.
TEST_F(ModelAveragerTest, IsTheMeanOfTheSameModelsInOneProcess) {
  std::int64_t round = 0;
  for (const auto& [workers, servers, d, b] :
       {std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>{1, 0, 9, 0},
        {2, 0, 1, 3},
        {5, 0, 1000, 7},
        {2, 2, 5, 0},
        {3, 3, 101, 4},
        {6, 0, 3'000'000, 10}}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE("workers " + std::to_string(workers) + ", servers " + std::to_string(servers) +
                   ", seed " + std::to_string(seed));
      at::manual_seed(seed);
      order(++round, models(workers, servers, d, b));
      std::mt19937_64 random(seed);
      const auto ranks = static_cast<std::size_t>(workers + servers);
      while (deliver_one(random))
        EXPECT_LE(elements_out(), static_cast<std::int64_t>(ranks) * slice_for(ranks))
            << "parts of a later slice are on their way";
      const auto averaged = answer();
      ASSERT_TRUE(averaged);
      EXPECT_EQ(averaged->round, round);
      expect_mean(*averaged, here_);
    }
  }
}

// The loss of a process amid the work: the supervisor orders the mean of the others.
TEST_F(ModelAveragerTest, ANewOrderTakesThePlaceOfOneThatALossHasStopped) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    at::manual_seed(seed);
    std::mt19937_64 random(seed);
    std::vector<LastModel> all = models(5, 0, 2'500'000, 3);
    order(1, all);
    for (auto parts = random() % 8; parts > 0; --parts) deliver_one(random);
    const Rank lost = 1 + static_cast<Rank>(random() % 4);
    self_->send(fetcher_, PeerLost{lost, ""});
    settle();
    for (auto parts = random() % 4; parts > 0; --parts) deliver_one(random);
    all.erase(all.begin() + lost);
    here_.erase(here_.begin() + lost);
    order(2, all);
    while (deliver_one(random)) {
    }
    const auto averaged = answer();
    ASSERT_TRUE(averaged);
    EXPECT_EQ(averaged->round, 2);
    expect_mean(*averaged, here_);
  }
}

TEST_F(ModelAveragerTest, AModelThatCannotBeHadIsSaid) {
  std::vector<LastModel> all = models(3, 0, 5, 0);
  self_->send(sender_of(2), ReleaseModel{2, kLastModel});
  order(1, all);
  std::mt19937_64 random(1);
  while (deliver_one(random)) {
  }
  const auto averaged = answer();
  ASSERT_TRUE(averaged);
  EXPECT_FALSE(averaged->z.defined());
  EXPECT_EQ(averaged->why, "rank 2 keeps its 8 newest models, and not this one");
}

TEST(SliceFor, TheSlicesOfAllRanksTogetherAreBounded) {
  EXPECT_EQ(slice_for(1), std::int64_t{16} << 20);
  EXPECT_EQ(slice_for(64), std::int64_t{256} << 10);
  EXPECT_EQ(slice_for(1024), std::int64_t{16} << 10);
  EXPECT_EQ(slice_for(1 << 20), std::int64_t{16} << 10);
}

}  // namespace model_averager_test
}  // namespace grapevine
