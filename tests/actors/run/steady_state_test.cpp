// What a step costs in memory once a run is under way: no allocation as large as the model, and no
// copy of it beside the one that overlap needs.
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace steady_state_test {
namespace {

using virtual_run_test::Scenario;

constexpr std::int64_t kDimension = 50'000;
constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kModelBytes = kDimension * 4;

struct Counts {
  std::int64_t allocations = 0;  // of a model's size or more
  std::int64_t copies = 0;       // of as many elements, by LibTorch
};

// LibTorch's allocator on the CPU, and how often it was asked for a model's size.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetAllocator(c10::kCPU)) { install(this); }
  ~CountingAllocator() override { install(inner_); }
  c10::DataPtr allocate(std::size_t bytes) const override {
    if (static_cast<std::int64_t>(bytes) >= kModelBytes) ++count_;
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  std::int64_t count() const { return count_; }

 private:
  static void install(c10::Allocator* allocator) {
    c10::SetAllocator(c10::kCPU, allocator, /*priority=*/100);
  }

  c10::Allocator* const inner_;
  mutable std::atomic<std::int64_t> count_{0};
};

std::atomic<std::int64_t> g_copies{0};

std::unique_ptr<at::ObserverContext> count_copy(const at::RecordFunction& call) {
  const std::string name = call.name();
  if (name != "aten::copy_" && name != "aten::clone") return nullptr;
  const c10::ArrayRef<const c10::IValue> inputs = call.inputs();
  if (!inputs.empty() && inputs.front().isTensor() &&
      inputs.front().toTensor().numel() >= kDimension)
    ++g_copies;
  return nullptr;
}

class CopyObserver {
 public:
  CopyObserver()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&count_copy).needsInputs(true))) {
    g_copies = 0;
  }
  ~CopyObserver() { at::removeCallback(handle_); }
  CopyObserver(const CopyObserver&) = delete;
  CopyObserver& operator=(const CopyObserver&) = delete;

 private:
  const at::CallbackHandle handle_;
};

Counts counts_of_run(const std::string& preset, Step steps) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.dimension = kDimension;
  scenario.steps = steps;
  scenario.steps_per_epoch = 1e9;
  scenario.momentum = 0.9;
  scenario.delay = "rotate=1ms..9ms";
  RunConfig run = virtual_run_test::make_run(scenario);
  run.evaluator = nullptr;
  const CountingAllocator allocator;
  const CopyObserver observer;
  const RunResult result = run_virtual(std::move(run), std::make_shared<virtual_run_test::Quiet>());
  EXPECT_FALSE(result.error) << result.error->message;
  return {allocator.count(), g_copies.load()};
}

// Start and end of a run cost the same whatever its length, so the difference of two runs is that
// of the steps which only one of them has.
Counts counts_of_steps(const std::string& preset, Step steps) {
  constexpr Step kStart = 20;
  const Counts less = counts_of_run(preset, kStart), more = counts_of_run(preset, kStart + steps);
  EXPECT_GT(less.allocations, 0) << "the allocator is not asked";
  return {more.allocations - less.allocations, more.copies - less.copies};
}

TEST(SteadyState, StepsAllocateNoModelAndCopyNone) {
  for (const std::string preset : {"sgp", "osgp", "ar"}) {
    SCOPED_TRACE(preset);
    const Counts counts = counts_of_steps(preset, 20);
    EXPECT_EQ(counts.allocations, 0);
    EXPECT_EQ(counts.copies, 0);
  }
}

}  // namespace
}  // namespace steady_state_test
}  // namespace grapevine
