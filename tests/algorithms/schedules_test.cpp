#include "algorithms/schedules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "algorithms/exchange_steps.hpp"
#include "algorithms/parts/local_update.hpp"

namespace grapevine {
namespace schedules_test {

using testing::HasSubstr;

LrSchedule make(const LrConfig& config) { return *LrSchedule::make(config); }

LrConfig with_spec(const std::string& spec) {
  LrConfig config;
  config.spec = spec;
  config.epochs = 90;
  return config;
}

TEST(LrSchedule, ConstantStaysAtItsBase) {
  const LrSchedule schedule = make(with_spec("constant"));
  for (double epoch : {0.0, 0.5, 30.0, 1e6}) EXPECT_EQ(schedule.at(epoch), 0.1);
  EXPECT_EQ(schedule.base(), 0.1);
}

TEST(LrSchedule, StepMultipliesAtEachMilestone) {
  const LrSchedule schedule = make(with_spec("step:0.1@30,60.5,80"));
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(29.999), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(30), 0.01);
  EXPECT_DOUBLE_EQ(schedule.at(60.4), 0.01);
  EXPECT_DOUBLE_EQ(schedule.at(60.5), 0.001);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.0001);
}

TEST(LrSchedule, CosineFallsFromBaseToFloorOverTheRun) {
  for (double floor : {0.0, 0.25}) {
    const LrSchedule schedule = make(with_spec("cosine:" + std::to_string(floor)));
    EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
    EXPECT_NEAR(schedule.at(45), 0.1 * (1 + floor) / 2, 1e-15);
    EXPECT_NEAR(schedule.at(90), 0.1 * floor, 1e-15);
    EXPECT_NEAR(schedule.at(200), 0.1 * floor, 1e-15) << "past the end";
    for (double epoch = 0; epoch < 90; epoch += 0.7)
      EXPECT_GT(schedule.at(epoch), schedule.at(epoch + 0.3)) << epoch;
  }
  EXPECT_NEAR(make(with_spec("cosine")).at(90), 0, 1e-15);
}

TEST(LrSchedule, PolynomialFallsByItsPower) {
  EXPECT_NEAR(make(with_spec("polynomial")).at(45), 0.05, 1e-15);
  EXPECT_NEAR(make(with_spec("polynomial:2")).at(45), 0.1 * 0.25, 1e-15);
  EXPECT_NEAR(make(with_spec("polynomial:2,0.2")).at(45), 0.1 * (0.2 + 0.8 * 0.25), 1e-15);
  EXPECT_NEAR(make(with_spec("polynomial:2,0.2")).at(500), 0.1 * 0.2, 1e-15);
}

TEST(LrSchedule, ExponentialMultipliesInEachPeriod) {
  EXPECT_NEAR(make(with_spec("exponential:0.9")).at(3), 0.1 * 0.729, 1e-15);
  EXPECT_NEAR(make(with_spec("exponential:0.9@2")).at(3), 0.1 * std::pow(0.9, 1.5), 1e-15);
}

// As torch.optim.lr_scheduler.OneCycleLR(max_lr=0.1, total_steps=…) with its defaults.
TEST(LrSchedule, OneCycleRisesAndFalls) {
  const LrSchedule schedule = make(with_spec("one-cycle"));
  EXPECT_NEAR(schedule.at(0), 0.1 / 25, 1e-15);
  EXPECT_NEAR(schedule.at(27), 0.1, 1e-15) << "0.3 of 90 epochs";
  EXPECT_NEAR(schedule.at(13.5), (0.1 / 25 + 0.1) / 2, 1e-15);
  EXPECT_NEAR(schedule.at(90), 0.1 / 25 / 1e4, 1e-15);
  EXPECT_NEAR(make(with_spec("one-cycle:0.5,10,2")).at(90), 0.1 / 20, 1e-15);
  EXPECT_NEAR(make(with_spec("one-cycle:0.5,10,2")).at(45), 0.1, 1e-15);
  LrConfig warm = with_spec("one-cycle");
  warm.warmup_epochs = 1;
  EXPECT_FALSE(LrSchedule::make(warm).ok());
}

// The rates of PyTorch 1.13, max_lr = 1, total_steps = 20.
TEST(LrSchedule, OneCycleHasTheRatesOfPyTorch) {
  const std::vector<double> expected = {0.040000000000000036,
                                        0.1316718427000253,
                                        0.3716718427000253,
                                        0.6683281572999747,
                                        0.9083281572999747,
                                        1.0,
                                        0.9874640062350873,
                                        0.9504846320134737,
                                        0.89091617757105,
                                        0.8117456539497631,
                                        0.7169430017913008,
                                        0.6112620219362893,
                                        0.500002,
                                        0.38874197806371075,
                                        0.28306099820869923,
                                        0.18825834605023697,
                                        0.10908782242895004,
                                        0.049519367986526286,
                                        0.012539993764912554,
                                        4e-06};
  LrConfig config = with_spec("one-cycle");
  config.lr = 1;
  config.steps_per_epoch = 4;
  config.epochs = 5;
  const LrSchedule schedule = make(config);
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(schedule.at(static_cast<double>(step) / 4), expected[step], 1e-12) << step;
}

// Where members change, a run of so many steps keeps its end, and moments in steps stay at their
// steps; by_samples: the epochs do.
TEST(LrSchedule, KeepsItsEndAmongOtherMembers) {
  for (const char* spec : {"cosine", "cosine:0.1", "polynomial:2,0.01", "one-cycle", "step:0.5@30s",
                           "step:0.1@10s,25s,38s", "exponential:0.5@7s"})
    for (const std::int32_t now : {1, 2, 3, 5, 8})
      for (const Step change : {7, 20, 33}) {
        SCOPED_TRACE(testing::Message()
                     << spec << ", 4 members, then " << now << " from step " << change);
        LrConfig config = with_spec(spec);
        config.steps_per_epoch = 10;
        config.epochs = 4;
        if (config.spec != "one-cycle") config.warmup_steps = 25;
        config.warmup_from = 0.1;
        const LrSchedule whole = make(config);
        Horizon horizon;
        horizon.steps = 40;
        horizon.steps_per_epoch = 10;
        const Horizon then = horizon.among(4, now, change, horizon.epoch_of(change));
        const LrSchedule among = whole.among(then);
        for (Step step = change; step < 40; ++step)
          EXPECT_NEAR(among.at(then.epoch_of(step) + 1e-9), whole.at(horizon.epoch_of(step) + 1e-9),
                      1e-7)
              << step;
        // A second change, whose schedule may have seen the first one or not.
        const Horizon last = then.among(now, 4, 35, then.epoch_of(35));
        for (Step step = 35; step < 40; ++step)
          EXPECT_EQ(among.among(last).at(last.epoch_of(step)),
                    whole.among(last).at(last.epoch_of(step)));
        horizon.by_samples = true;
        const Horizon shared = horizon.among(4, now, change, horizon.epoch_of(change));
        if (spec[0] != 's' && spec[0] != 'o' && spec[0] != 'e') {
          config.warmup_steps = 0;
          EXPECT_EQ(make(config).among(shared).at(3.3), make(config).at(3.3));
        }
      }
}

TEST(LrSchedule, TakesMomentsInSteps) {
  LrConfig config = with_spec("step:0.1@200s,3");
  EXPECT_FALSE(LrSchedule::make(config).ok()) << "the length of an epoch is not known";
  config.steps_per_epoch = 100;
  const LrSchedule schedule = make(config);
  EXPECT_DOUBLE_EQ(schedule.at(1.99), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(2), 0.01);
  EXPECT_NEAR(schedule.at(3), 0.001, 1e-15);
  config.spec = "exponential:0.5@50s";
  EXPECT_NEAR(make(config).at(1), 0.025, 1e-15);
}

TEST(LrSchedule, WarmsUpFromAPartOfTheRate) {
  LrConfig config = with_spec("constant");
  config.warmup_epochs = 10;
  config.warmup_from = 0.4;
  EXPECT_NEAR(make(config).at(0), 0.04, 1e-15);
  EXPECT_NEAR(make(config).at(5), 0.07, 1e-15);
  EXPECT_NEAR(make(config).at(10), 0.1, 1e-15);
  config.warmup_from = 1.1;
  EXPECT_FALSE(LrSchedule::make(config).ok());
}

TEST(LrSchedule, RefusesShapesOutOfRange) {
  for (const char* spec :
       {"polynomial:0", "polynomial:1,2", "polynomial:1,0,0", "polynomial:x", "exponential:0",
        "exponential", "exponential:0.9@0", "one-cycle:0", "one-cycle:1", "one-cycle:0.3,0.5",
        "one-cycle:0.3,25,10,1", "one-cycle:", "polynomial:", "linear"})
    EXPECT_FALSE(LrSchedule::make(with_spec(spec)).ok()) << spec;
}

// The recipe of Goyal et al. 2017: 0.1 per 256 samples, 8192 samples, warm-up over 5 epochs, decay
// by 10 at 30, 60, 80.
TEST(LrSchedule, ReproducesTheLargeBatchRecipe) {
  LrConfig config = with_spec("step:0.1@30,60,80");
  config.per_256 = true;
  config.global_batch = 8192;
  config.warmup_epochs = 5;
  const LrSchedule schedule = make(config);
  EXPECT_DOUBLE_EQ(schedule.base(), 3.2);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(2.5), 0.1 + (3.2 - 0.1) / 2);
  EXPECT_DOUBLE_EQ(schedule.at(5), 3.2);
  EXPECT_DOUBLE_EQ(schedule.at(29.9), 3.2);
  EXPECT_DOUBLE_EQ(schedule.at(30), 0.32);
  EXPECT_DOUBLE_EQ(schedule.at(89), 0.0032);
}

TEST(LrSchedule, WarmsUpFromZeroWithoutScaling) {
  LrConfig config;
  config.warmup_epochs = 2;
  const LrSchedule schedule = make(config);
  EXPECT_EQ(schedule.at(0), 0);
  EXPECT_DOUBLE_EQ(schedule.at(0.5), 0.025);
  EXPECT_DOUBLE_EQ(schedule.at(2), 0.1);
}

// Every step of the ramp moves, the first one too, and it ends where it would without.
TEST(LrSchedule, AStepOfTheWarmUpTakesTheRateOfItsEnd) {
  LrConfig config;
  config.warmup_epochs = 2;
  config.steps_per_epoch = 10;
  const LrSchedule schedule = make(config);
  for (int step = 0; step < 20; ++step)
    EXPECT_NEAR(schedule.at(step / 10.0), 0.1 * (step + 1) / 20, 1e-12) << "step " << step;
  EXPECT_DOUBLE_EQ(schedule.at(2), 0.1);
  config.spec = "step:0.1@1";
  EXPECT_NEAR(make(config).at(0.9), 0.1 * 10 / 20, 1e-12) << "decay keeps its epoch";
  EXPECT_NEAR(make(config).at(1), 0.01 * 11 / 20, 1e-12);
}

TEST(LrSchedule, NeverWarmsUpDownwards) {
  LrConfig config;
  config.per_256 = true;
  config.global_batch = 32;
  config.warmup_epochs = 5;
  const LrSchedule schedule = make(config);
  for (double epoch : {0.0, 1.0, 5.0, 9.0}) EXPECT_DOUBLE_EQ(schedule.at(epoch), 0.1 / 8);
}

TEST(LrSchedule, WarmUpJoinsTheDecayWithoutAJump) {
  LrConfig config = with_spec("cosine");
  config.warmup_epochs = 10;
  const LrSchedule schedule = make(config);
  EXPECT_NEAR(schedule.at(10 - 1e-9), schedule.at(10), 1e-9);
}

TEST(LrSchedule, AcceptsARateOfZero) {
  LrConfig config;
  config.lr = 0;
  EXPECT_EQ(make(config).at(3), 0);
}

TEST(LrSchedule, QuotesABadSpec) {
  for (const char* spec : {"",
                           "steps",
                           "step",
                           "step:",
                           "step:0.1",
                           "step:0.1@",
                           "step:@30",
                           "step:x@30",
                           "step:-1@30",
                           "step:0.1@30,",
                           "step:0.1@,30",
                           "step:0.1@60,30",
                           "step:0.1@30,30",
                           "step:0.1@0",
                           "step:0.1@inf",
                           "step:nan@3",
                           "step:0.1@30 ",
                           "cosine:",
                           "cosine:2",
                           "cosine:-0.1",
                           "cosine:x",
                           "cosines",
                           "constant:1",
                           "Constant"}) {
    SCOPED_TRACE(spec);
    const Expected<LrSchedule> schedule = LrSchedule::make(with_spec(spec));
    ASSERT_FALSE(schedule.ok());
    EXPECT_EQ(schedule.error().code, Errc::bad_input);
    EXPECT_THAT(schedule.error().message,
                HasSubstr("--lr-schedule '" + std::string(spec) + "': expected"));
  }
  EXPECT_THAT(LrSchedule::make(with_spec("step:0.1@")).error().message,
              HasSubstr("step:GAMMA@T1,T2,…"));
}

// Whether step 300 comes before epoch 2 depends on the data.
TEST(LrSchedule, MilestonesOfEachUnitAscendWhereEpochsHaveNoLengthYet) {
  for (const char* spec : {"step:0.1@2,300s,400s", "step:0.1@300s,2,400s,3", "step:0.1@500s",
                           "exponential:0.5@7s", "cosine"})
    EXPECT_TRUE(LrSchedule::check(with_spec(spec)).ok()) << spec;
  EXPECT_FALSE(LrSchedule::make(with_spec("step:0.1@500s")).ok());
  for (const char* spec :
       {"step:0.1@2,400s,300s", "step:0.1@2,300s,1", "step:0.1@300s,300s", "step:0.1@0s,1",
        "step:0.1@1,,2", "step:0.1@1,", "step:x@1", "step:0.1@1,xs"}) {
    const Expected<void> checked = LrSchedule::check(with_spec(spec));
    ASSERT_FALSE(checked.ok()) << spec;
    EXPECT_THAT(checked.error().message,
                HasSubstr("--lr-schedule '" + std::string(spec) + "': expected step:GAMMA@"));
  }
}

TEST(LrSchedule, RefusesNumbersOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [](auto change) {
    LrConfig config = with_spec("cosine");
    change(config);
    const Expected<LrSchedule> schedule = LrSchedule::make(config);
    return schedule ? std::string() : schedule.error().message;
  };
  EXPECT_THAT(message([](LrConfig& c) { c.lr = -0.5; }), HasSubstr("--lr -0.5"));
  EXPECT_THAT(message([&](LrConfig& c) { c.lr = nan; }), HasSubstr("--lr nan"));
  EXPECT_THAT(message([](LrConfig& c) { c.warmup_epochs = -1; }), HasSubstr("--warmup-epochs -1"));
  EXPECT_THAT(message([](LrConfig& c) { c.epochs = 0; }), HasSubstr("--epochs 0"));
  EXPECT_THAT(message([](LrConfig& c) {
                c.per_256 = true;
                c.global_batch = 0;
              }),
              HasSubstr("global batch 0"));
}

TEST(CountSchedule, ChangesAtItsEpochs) {
  const CountSchedule schedule = *CountSchedule::parse("0:1,30:2,60.5:4");
  EXPECT_EQ(schedule.at(0), 1);
  EXPECT_EQ(schedule.at(29.99), 1);
  EXPECT_EQ(schedule.at(30), 2);
  EXPECT_EQ(schedule.at(60.5), 4);
  EXPECT_EQ(schedule.at(1e9), 4);
  EXPECT_EQ(CountSchedule::parse("3")->at(17), 3);
}

TEST(CountSchedule, PrintsWhatItReads) {
  for (const char* text : {"1", "12", "0:1,30:2", "0:5,0.1:6,60.5:4"})
    EXPECT_EQ(CountSchedule::parse(text)->to_string(), text);
  EXPECT_EQ(CountSchedule::parse("0:3")->to_string(), "3");
}

TEST(CountSchedule, QuotesABadCount) {
  for (const char* text : {"", "0", "-1", "x", "1.5", "1 ", "2,3", "0:", ":2", "0:0", "1:2",
                           "0:1,30:2,", "0:1,30:2,30:3", "0:1,30:2,20:3", "0:1,nan:2", "0:1.5"}) {
    SCOPED_TRACE(text);
    const Expected<CountSchedule> schedule = CountSchedule::parse(text);
    ASSERT_FALSE(schedule.ok());
    EXPECT_EQ(schedule.error().code, Errc::bad_input);
    EXPECT_THAT(schedule.error().message, HasSubstr("'" + std::string(text) + "'"));
  }
}

// Gu et al. 2024, with alpha = 0.0175 and H_base = 4: ranges of one rate each.
TEST(ExchangeSteps, FollowTheQuadraticRule) {
  const Horizon horizon{4000, 1000};
  LrConfig rate;
  rate.lr = 0.008;
  rate.spec = "step:0.5@1,2,3";
  LocalSteps steps;
  steps.by_epoch = CountSchedule::constant(4);
  steps.alpha = 0.0175;
  const ExchangeSteps exchanges(steps, horizon, make(rate));
  const auto h_after = [&](Step step) {
    Step next = step + 1;
    while (!exchanges.due(next)) ++next;
    return next - step;
  };
  EXPECT_EQ(h_after(0), 4);
  EXPECT_EQ(h_after(1000), 19);
  const Step third = exchanges.end_of(exchanges.index_of(2000)),
             fourth = exchanges.end_of(exchanges.index_of(3000));
  EXPECT_EQ(h_after(third), 76);
  EXPECT_EQ(h_after(fourth), 306);
  EXPECT_EQ(exchanges.longest(), 306);
  // (0.6 / 0.2)^2 is 9, not the 8 that floating point has.
  LocalSteps nine;
  nine.alpha = 0.6;
  LrConfig constant;
  constant.lr = 0.2;
  EXPECT_EQ(ExchangeSteps(nine, horizon, make(constant)).longest(), 9);
  // Where the rate is 0 nothing can be gained by an exchange before the end.
  constant.lr = 0;
  EXPECT_EQ(ExchangeSteps(nine, horizon, make(constant)).count(), 1);
}

// Numbers, ends and due steps agree with a walk from step to step; warm-up keeps the base.
TEST(ExchangeSteps, AreNumberedAlikeHoweverTheyAreAskedFor) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    const auto below = [&rng](std::uint64_t most) {
      return static_cast<std::int64_t>(rng() % most);
    };
    const Horizon horizon{1 + below(60), 5};
    LrConfig rate;
    rate.lr = 0.1;
    rate.warmup_epochs = seed % 3 == 0 ? 2 : 0;
    LocalSteps steps;
    steps.by_epoch = *CountSchedule::parse(
        seed % 2 == 0 ? std::to_string(1 + below(7))
                      : "0:" + std::to_string(1 + below(5)) + ",3:" + std::to_string(1 + below(7)));
    steps.alpha = seed % 5 == 0 ? 0.25 : 0;
    const ExchangeSteps exchanges(steps, horizon, make(rate));
    std::int64_t index = 0;
    for (Step step = 0; step < horizon.steps; ++step) {
      const double epoch = horizon.epoch_of(step);
      const bool begins = exchanges.due(step);
      ASSERT_TRUE(begins || step > 0);
      EXPECT_EQ(exchanges.index_of(step), index);
      if (begins) {
        const Step end = exchanges.end_of(index);
        const std::int64_t base = steps.by_epoch.at(epoch);
        const bool quadratic = steps.alpha > 0 && epoch >= rate.warmup_epochs;
        EXPECT_EQ(end, std::min(step + std::max<std::int64_t>(base, quadratic ? 6 : base),
                                horizon.steps));
        EXPECT_LE(end - step, exchanges.longest());
      }
      if (exchanges.due(step + 1)) {
        EXPECT_EQ(exchanges.end_of(index), step + 1);
        ++index;
      }
    }
    EXPECT_EQ(exchanges.count(), index);
    EXPECT_TRUE(exchanges.due(horizon.steps));
    // Beyond the horizon the last H goes on from where it would have ended.
    const Horizon longer{horizon.steps + 30, 5};
    const ExchangeSteps all(steps, longer, make(rate));
    const Step last = exchanges.begin_of(exchanges.count() - 1);
    Step next = last;
    while (!all.due(++next)) {
    }
    for (Step step = horizon.steps + 1; step <= next; ++step)
      EXPECT_EQ(exchanges.on_schedule(step), step == next) << "step " << step;
  }
}

// Over the steps of the run where training ends after a number of steps, else over its epochs:
// where members are lost, the rate goes on from where it was.
TEST(OuterRate, ContinuesWhereMembersChange) {
  LocalUpdateSettings local;
  local.outer_lr = 0.8;
  local.outer_schedule = "cosine:0.1";
  for (const bool by_samples : {false, true}) {
    SCOPED_TRACE(by_samples ? "samples" : "steps");
    Horizon start{40, 5};
    start.by_samples = by_samples;
    const LrSchedule whole = outer_rate(local, start);
    EXPECT_EQ(whole.at(0), 0.8);
    EXPECT_NEAR(whole.at(8), 0.08, 1e-12);
    for (const std::int32_t now : {1, 3, 4, 7}) {
      const Horizon then = start.among(4, now, 15, 3);
      const LrSchedule rate = outer_rate(local, then);
      EXPECT_NEAR(rate.at(3), whole.at(3), 1e-12) << now << " ranks";
      if (by_samples) {
        EXPECT_NEAR(rate.at(5.5), whole.at(5.5), 1e-12);
        continue;
      }
      for (Step step = 15; step <= 40; ++step)
        EXPECT_NEAR(rate.at(then.epoch_of(step)), whole.at(start.epoch_of(step)), 1e-12)
            << now << " ranks, step " << step;
    }
  }
}

}  // namespace schedules_test
}  // namespace grapevine
