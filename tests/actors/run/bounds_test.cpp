// What must not grow without bound in a long run, and what must not look like standing still.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>

#include "actors/record/checkpoints/checkpoint_writer.hpp"
#include "actors/record/trace_budget.hpp"
#include "actors/record/tracer.hpp"
#include "actors/run/models/evaluator.hpp"
#include "actors/run/step_times.hpp"

namespace grapevine {
namespace bounds_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

template <class Handle>
Handle handle_of(caf::scoped_actor& actor) {
  return caf::actor_cast<Handle>(caf::actor_cast<caf::strong_actor_ptr>(actor.ptr()));
}

TEST(StepTimes, AreExactForShortRuns) {
  StepTimes times;
  std::vector<double> all;
  for (std::size_t i = 0; i < StepTimes::kMost; ++i) {
    all.push_back(static_cast<double>(i));
    times.add(all.back());
  }
  EXPECT_EQ(times.sample(), all);
}

TEST(StepTimes, KeepAFairSampleOfLongOnes) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StepTimes times(seed);
    const std::size_t count = 20 * StepTimes::kMost;
    for (std::size_t i = 0; i < count; ++i)
      times.add(static_cast<double>(i) / static_cast<double>(count));
    ASSERT_EQ(times.sample().size(), StepTimes::kMost);
    double sum = 0;
    for (const double value : times.sample()) sum += value;
    // Ten standard deviations of the mean of so many.
    EXPECT_NEAR(sum / static_cast<double>(StepTimes::kMost), 0.5, 10 * 0.2887 / 128);
  }
}

TEST(TraceBudget, LetsNoMoreWaitThanItHas) {
  TraceBudget budget(100);
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(60));
  EXPECT_TRUE(budget.take(40));
  EXPECT_FALSE(budget.take(1));
  EXPECT_EQ(budget.dropped(), 61U);
  budget.give_back(60);
  EXPECT_TRUE(budget.take(60));
  EXPECT_EQ(budget.dropped(), 61U);
}

TEST(Bounds, ATracerGivesBackWhatItHasWrittenAndSaysWhatIsMissing) {
  caf::actor_system_config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  const auto budget = std::make_shared<TraceBudget>(2);
  ASSERT_TRUE(budget->take(2));
  ASSERT_FALSE(budget->take(3));
  const auto tracer =
      system.spawn(grapevine::tracer, TracerConfig{{}, handle_of<TraceOwner>(self), budget});
  self->send(tracer, TraceBatch{std::vector<TraceRecord>(2)});
  self->send(tracer, CloseTrace{});
  self->receive(
      [&](const TraceClosed& closed) {
        EXPECT_EQ(closed.records, 2U);
        EXPECT_EQ(closed.dropped, 3U);
      },
      caf::after(kDeadline) >> [] { FAIL() << "nothing came"; });
  EXPECT_TRUE(budget->take(2));
  self->send_exit(tracer, caf::exit_reason::user_shutdown);
}

// Evaluates when it is let.
class Held final : public Compute {
 public:
  explicit Held(std::shared_future<void> let) : let_(std::move(let)) {}
  std::int64_t dimension() const override { return 1; }
  FrozenTensor initial_parameters() const override { return FrozenTensor::copy_of(at::zeros({1})); }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest) override { return {}; }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    let_.wait_for(kDeadline);
    return Evaluation{};
  }

 private:
  const std::shared_future<void> let_;
};

// Each epoch is answered for, the newest is evaluated, and few models wait at a time.
TEST(Bounds, AnEvaluatorThatIsBehindLeavesOutTheOldest) {
  constexpr Epoch kEpochs = 40;
  caf::actor_system_config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  std::promise<void> let;
  EvaluatorConfig evaluation;
  evaluation.compute = std::make_shared<Held>(let.get_future().share());
  evaluation.supervisor = handle_of<SupervisorActor>(self);
  const auto evaluator = system.spawn(grapevine::evaluator, evaluation);
  for (Epoch epoch = 0; epoch < kEpochs; ++epoch)
    self->send(evaluator, EpochModel{0, epoch, FrozenTensor::copy_of(at::ones({1})), {}});
  std::set<Epoch> left_out, evaluated;
  for (Epoch answers = 0; answers < kEpochs; ++answers) {
    self->receive(
        [&](const EpochEvaluated& answer) {
          (answer.error.empty() ? evaluated : left_out).insert(answer.epoch);
        },
        caf::after(kDeadline) >> [] { FAIL() << "nothing came"; });
    // One is being evaluated and kMostWaiting wait: the others are known to be left out.
    if (answers + 1 == kEpochs - 1 - static_cast<Epoch>(kMostWaiting)) let.set_value();
  }
  EXPECT_EQ(evaluated.size() + left_out.size(), static_cast<std::size_t>(kEpochs));
  EXPECT_EQ(evaluated.size(), 1 + kMostWaiting);
  EXPECT_EQ(evaluated.count(0), 1U);
  EXPECT_EQ(evaluated.count(kEpochs - 1), 1U);
  self->send_exit(evaluator, caf::exit_reason::user_shutdown);
}

TEST(Bounds, ACheckpointThatIsWrittenRankByRankGivesSignsOfLife) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "signs-of-life";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  caf::actor_system_config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  CheckpointWriterConfig writing;
  writing.folder = folder.string();
  writing.supervisor = handle_of<SupervisorActor>(self);
  const auto writer = system.spawn(checkpoint_writer, writing);
  WriteCheckpoint order{1, "final", {}, {}, {}};
  for (Rank rank = 0; rank < 3; ++rank) order.ranks.push_back({1, rank, 5, {}});
  self->send(writer, order);
  int signs = 0;
  for (bool written = false; !written;)
    self->receive([&](Progress) { ++signs; },
                  [&](const CheckpointWritten& done) {
                    EXPECT_EQ(done.error, "");
                    written = true;
                  },
                  caf::after(kDeadline) >>
                      [&] {
                        ADD_FAILURE() << "nothing came";
                        written = true;
                      });
  EXPECT_EQ(signs, 3);
  self->send_exit(writer, caf::exit_reason::user_shutdown);
}

}  // namespace bounds_test
}  // namespace grapevine
