// `--delay length` with the shipped actors in virtual time: a worker takes as long as its batch is.
#include <gtest/gtest.h>

#include <algorithm>

#include "actors/run/simulation/run_virtual.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace length_delay_test {

std::int64_t length_at(Rank rank, Step step) { return 6 + (17 * rank + 31 * step) % 97; }

// A quadratic whose batches have lengths.
class LengthCompute : public Compute {
 public:
  LengthCompute(std::unique_ptr<Compute> inner, Rank rank)
      : inner_(std::move(inner)), rank_(rank) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest request) override {
    const Step step = request.step;
    Gradient gradient = inner_->gradient(std::move(request));
    gradient.length = length_at(rank_, step);
    return gradient;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  std::unique_ptr<Compute> inner_;
  Rank rank_;
};

struct StepKeeper : RunObserver {
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult) override {}
  std::vector<StepReport> steps;
};

std::vector<StepReport> run_all_reduce(std::int32_t ranks, const std::string& delay) {
  RunConfig run;
  run.ranks = ranks;
  run.parts =
      *make_parts(*resolve(find_preset("ar")->wiring), {12, 6}, *LrSchedule::make({}), {}, ranks);
  run.transport = make_inproc_transport(ranks);
  for (Rank rank = 0; rank < ranks; ++rank) {
    QuadraticConfig quadratic;
    quadratic.dimension = 8;
    quadratic.rank = rank;
    quadratic.ranks = ranks;
    run.computes.push_back(
        std::make_shared<LengthCompute>(*QuadraticCompute::make(quadratic), rank));
  }
  run.delay = *parse_delay(delay, ranks, 1);
  const auto keeper = std::make_shared<StepKeeper>();
  const RunResult result = run_virtual(std::move(run), keeper);
  EXPECT_FALSE(result.error) << result.error->message;
  return keeper->steps;
}

TEST(LengthDelay, AStepTakesAsLongAsItsBatchIs) {
  const auto steps = run_all_reduce(1, "length");
  ASSERT_EQ(steps.size(), 12U);
  for (const StepReport& step : steps)
    EXPECT_NEAR(step.batch_time_s, 1e-3 * static_cast<double>(length_at(0, step.step)), 1e-9);
}

TEST(LengthDelay, AllReduceWaitsForTheLongestBatch) {
  const auto steps = run_all_reduce(4, "length=2ms");
  ASSERT_EQ(steps.size(), 48U);
  double total = 0;
  for (Step step = 0; step < 12; ++step) {
    std::int64_t longest = 0;
    for (Rank rank = 0; rank < 4; ++rank) longest = std::max(longest, length_at(rank, step));
    total += 2e-3 * static_cast<double>(longest);
  }
  double end = 0;
  for (const StepReport& step : steps) end = std::max(end, step.time_s);
  EXPECT_NEAR(end, total, 1e-9);
}

}  // namespace length_delay_test
}  // namespace grapevine
