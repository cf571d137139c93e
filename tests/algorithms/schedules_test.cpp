#include "algorithms/schedules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

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
              HasSubstr("step:GAMMA@E1,E2,…"));
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

}  // namespace schedules_test
}  // namespace grapevine
