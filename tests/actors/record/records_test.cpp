// What a run writes down of itself: figures that are saved, added up, and read again.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <tuple>

#include "actors/cluster/node_pool.hpp"
#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/ledger.hpp"
#include "actors/run/delay.hpp"
#include "actors/run/models/model_average.hpp"

namespace grapevine {
namespace records_test {

// ---- the ledger ----

// Another number in every figure.
Ledger ledger_from(std::int64_t first) {
  Ledger ledger;
  std::int64_t next = first;
  for (std::int64_t* figure :
       {&ledger.produced, &ledger.committed, &ledger.dropped, &ledger.samples, &ledger.sent,
        &ledger.received, &ledger.sent_before})
    *figure = next++;
  ledger.produced += ledger.committed + ledger.dropped;
  ledger.bytes_sent = static_cast<std::uint64_t>(next++);
  ledger.staleness = {{0, next}, {3, next + 1}};
  ledger.contributed = {{-1, next + 2}, {2, next + 3}};
  return ledger;
}

TEST(Ledger, ASavedOneGoesOn) {
  const Ledger ledger = ledger_from(10);
  Ledger loaded;
  ASSERT_TRUE(loaded.load(ledger.save()).ok());
  EXPECT_EQ(loaded.produced, ledger.produced);
  EXPECT_EQ(loaded.committed, ledger.committed);
  EXPECT_EQ(loaded.dropped, ledger.dropped);
  EXPECT_EQ(loaded.samples, ledger.samples);
  EXPECT_EQ(loaded.bytes_sent, ledger.bytes_sent);
  EXPECT_EQ(loaded.staleness, ledger.staleness);
  EXPECT_EQ(loaded.contributed, ledger.contributed);
  // Messages of before are counted, and not weighed against what this run receives.
  EXPECT_EQ(loaded.sent, 0);
  EXPECT_EQ(loaded.received, 0);
  EXPECT_EQ(loaded.sent_before, ledger.sent_before + ledger.sent);
  Ledger again;
  loaded.sent = 5;
  ASSERT_TRUE(again.load(loaded.save()).ok());
  EXPECT_EQ(again.sent_before, ledger.sent_before + ledger.sent + 5);
}

TEST(Ledger, ADamagedHistogramIsRefused) {
  for (const std::string name :
       {"staleness.x", "staleness.", "joined.3x", "staleness.99999999999999999999"}) {
    StateDict saved = ledger_from(10).save();
    saved.put(name, std::int64_t{1});
    Ledger loaded;
    const auto result = loaded.load(saved);
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_THAT(result.error().message, testing::HasSubstr("'" + name + "'"));
  }
  StateDict saved = ledger_from(10).save();
  saved.put("joined.4", 0.5);
  Ledger loaded;
  EXPECT_FALSE(loaded.load(saved).ok());
}

// As an unsigned number one would be about 2^64.
TEST(Ledger, ACountBelow0IsRefused) {
  for (const std::string name : {"produced", "committed", "dropped", "samples", "messages_sent",
                                 "bytes_sent", "staleness.3", "joined.2", "joined.-1"}) {
    StateDict saved = ledger_from(10).save();
    ASSERT_EQ(saved.entries().count(name), 1U) << name;
    saved.put(name, std::int64_t{0});
    EXPECT_EQ(Ledger().load(saved).ok(), name != "produced") << name;
    saved.put(name, std::int64_t{-1});
    const auto result = Ledger().load(saved);
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_THAT(result.error().message,
                testing::AllOf(testing::HasSubstr("'" + name + "'"),
                               testing::HasSubstr("resume from another one")));
  }
  for (const std::string name : {"staleness.-1", "joined.-2"}) {
    StateDict saved = ledger_from(10).save();
    saved.put(name, std::int64_t{1});
    EXPECT_FALSE(Ledger().load(saved).ok()) << name;
  }
}

TEST(Ledger, MoreGradientsCommittedAndDroppedThanProducedAreRefused) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  struct Counts {
    std::int64_t produced, committed, dropped;
    bool fits;
  };
  for (const Counts& counts :
       {Counts{5, 2, 3, true}, Counts{5, 5, 0, true}, Counts{0, 0, 0, true},
        Counts{kMost, kMost - 1, 1, true}, Counts{5, 2, 4, false}, Counts{5, 6, 0, false},
        Counts{0, 0, 1, false}, Counts{0, kMost, kMost, false}}) {
    StateDict saved = ledger_from(10).save();
    saved.put("produced", counts.produced);
    saved.put("committed", counts.committed);
    saved.put("dropped", counts.dropped);
    const auto result = Ledger().load(saved);
    SCOPED_TRACE(std::to_string(counts.committed) + " and " + std::to_string(counts.dropped) +
                 " of " + std::to_string(counts.produced));
    EXPECT_EQ(result.ok(), counts.fits);
    if (result.ok()) continue;
    EXPECT_EQ(result.error().code, Errc::bad_input);
    EXPECT_THAT(result.error().message,
                testing::AllOf(testing::HasSubstr("than produced"),
                               testing::HasSubstr("resume from another one")));
  }
}

TEST(Ledger, OfAllRanksIsTheSumOfTheirs) {
  const Ledger a = ledger_from(10), b = ledger_from(100);
  Ledger sum = a;
  sum.merge(b);
  for (const auto figure :
       {&Ledger::produced, &Ledger::committed, &Ledger::dropped, &Ledger::samples, &Ledger::sent,
        &Ledger::received, &Ledger::sent_before})
    EXPECT_EQ(sum.*figure, a.*figure + b.*figure);
  EXPECT_EQ(sum.bytes_sent, a.bytes_sent + b.bytes_sent);
  EXPECT_EQ(sum.staleness.at(3), a.staleness.at(3) + b.staleness.at(3));
  EXPECT_EQ(sum.contributed.at(-1), a.contributed.at(-1) + b.contributed.at(-1));
}

// Nearest rank: the smallest value that is not below p percent of them.
TEST(Ledger, PercentilesAreOfTheNearestRank) {
  std::map<std::int64_t, std::int64_t> to_hundred;
  for (std::int64_t value = 1; value <= 100; ++value) to_hundred[value] = 1;
  EXPECT_EQ(summarize(to_hundred).p50, 50);
  EXPECT_EQ(summarize(to_hundred).p99, 99);
  EXPECT_EQ(summarize(to_hundred).max, 100);
  EXPECT_DOUBLE_EQ(summarize(to_hundred).mean, 50.5);
  EXPECT_EQ(summarize({{0, 99}, {7, 1}}).p99, 0);
  EXPECT_EQ(summarize({{0, 98}, {7, 2}}).p99, 7);
  EXPECT_EQ(summarize({{4, 1}}).p50, 4);
  EXPECT_EQ(summarize({}).p99, 0);
}

// ---- checkpoints ----

TEST(Checkpoints, TheirFiguresAreOfTheRanks) {
  Checkpoint checkpoint;
  for (const auto& [elapsed, step, epoch] : std::vector<std::tuple<std::int64_t, Step, double>>{
           {70, 4, 0.4}, {90, 6, 0.6}, {20, 0, 0}}) {
    StateDict rank;
    rank.put("elapsed_ns", elapsed);
    rank.put("model.step", step);
    rank.put("model.epoch", epoch);
    checkpoint.ranks.push_back(rank);
  }
  checkpoint.ranks[1].put("reported", std::int64_t{8});
  EXPECT_EQ(checkpoint.elapsed(), Duration(90)) << "that of the rank that trained longest";
  EXPECT_EQ(checkpoint.steps(), (std::vector<Step>{4, 6, 0}));
  EXPECT_EQ(checkpoint.reported(), (std::vector<Step>{4, 8, 0}));
  EXPECT_EQ(checkpoint.epochs(), (std::vector<double>{0.4, 0.6, 0}));
}

TEST(SameJob, DiffersWhereAnOptionCameWentOrChanged) {
  const JobIdentity saved = {{"lr", "0.1"}, {"model", "mlp"}, {kStepsKey, "100"}};
  const auto refusal = [&](const JobIdentity& present) {
    const auto same = check_same_job(saved, present, "runs/x");
    return same.ok() ? std::string() : same.error().message;
  };
  EXPECT_EQ(refusal(saved), "");
  EXPECT_EQ(refusal({{"lr", "0.1"}, {"model", "mlp"}}), "") << "the steps may differ";
  EXPECT_NE(refusal({{"lr", "0.2"}, {"model", "mlp"}}).find("lr was 0.1, now it is 0.2"),
            std::string::npos);
  EXPECT_NE(refusal({{"lr", "0.1"}}).find("model was mlp, now it is (nothing)"), std::string::npos);
  EXPECT_NE(
      refusal({{"lr", "0.1"}, {"model", "mlp"}, {"x", "1"}}).find("x was (nothing), now it is 1"),
      std::string::npos);
}

// ---- small things with limits ----

TEST(Delay, DurationsHaveALimit) {
  EXPECT_TRUE(parse_duration("1000000s").ok());
  for (const char* too_long : {"1000001s", "99999999999999999999s", "1000000001ms"})
    EXPECT_FALSE(parse_duration(too_long).ok()) << too_long;
}

TEST(NodeLayout, NodesWithoutAProcessHaveNoShare) {
  const auto shares = lay_out({2, 0, 3, 1}, 4);
  ASSERT_TRUE(shares.ok());
  ASSERT_EQ(shares->size(), 2U);
  EXPECT_EQ(shares->front().node, 0U);
  EXPECT_EQ(shares->back().node, 2U);
  EXPECT_EQ(shares->back().first, 2);
  EXPECT_EQ(shares->back().count, 2);
}

TEST(ModelAverage, BuffersAreAveragedAsTheModelIs) {
  ModelAverage average;
  for (const float value : {1.0F, 2.0F, 6.0F})
    average.add(FrozenTensor::freeze(at::full({2}, value)),
                FrozenTensor::freeze(at::full({3}, 10 * value)));
  EXPECT_TRUE(at::equal(average.z().read(), at::full({2}, 3.0F)));
  EXPECT_TRUE(at::equal(average.buffers().read(), at::full({3}, 30.0F)));
}

}  // namespace records_test
}  // namespace grapevine
