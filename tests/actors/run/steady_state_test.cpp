// What a step costs in memory once a run is under way: no allocation as large as the model, and no
// copy of it beside the one that overlap needs.
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tests/actors/run/virtual_scenario.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace steady_state_test {
namespace {

using virtual_run_test::Scenario;

constexpr std::int64_t kDimension = 50'000;
constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kModelBytes = kDimension * 4;

// Smaller blocks are shapes, names and messages without a payload.
constexpr std::size_t kSmallestCounted = 4096;

struct Counts {
  std::int64_t allocated = 0;  // bytes, in blocks of at least kSmallestCounted
  std::int64_t kept = 0;       // of them, not freed
  std::int64_t copies = 0;     // of as many elements as the model has, by LibTorch
};

// LibTorch's allocator on the CPU, and the bytes that it was asked for and that it got back.
// Tensors may outlive an object. One at a time.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() {
    g_inner = c10::GetAllocator(c10::kCPU);
    g_allocated = g_kept = 0;
    install(this);
  }
  ~CountingAllocator() override { install(g_inner); }
  c10::DataPtr allocate(std::size_t bytes) const override {
    c10::DataPtr block = g_inner->allocate(bytes);
    if (bytes < kSmallestCounted || block.get() != block.get_context()) return block;
    g_allocated += static_cast<std::int64_t>(bytes);
    g_kept += static_cast<std::int64_t>(bytes);
    const std::lock_guard<std::mutex> lock(g_mutex);
    void* const memory = block.release_context();
    g_blocks[memory] = static_cast<std::int64_t>(bytes);
    return {memory, memory, &free_counted, block.device()};
  }
  std::int64_t allocated() const { return g_allocated; }
  std::int64_t kept() const { return g_kept; }

 private:
  static void install(c10::Allocator* allocator) {
    c10::SetAllocator(c10::kCPU, allocator, /*priority=*/100);
  }
  static void free_counted(void* memory) {
    {
      const std::lock_guard<std::mutex> lock(g_mutex);
      const auto found = g_blocks.find(memory);
      g_kept -= found->second;
      g_blocks.erase(found);
    }
    g_inner->raw_deleter()(memory);
  }

  static inline c10::Allocator* g_inner = nullptr;
  static inline std::atomic<std::int64_t> g_allocated{0}, g_kept{0};
  static inline std::mutex g_mutex;
  static inline std::unordered_map<void*, std::int64_t> g_blocks;  // guarded by g_mutex
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

// Notes what is kept once a run is under way, in the middle of it.
struct Watching final : virtual_run_test::Quiet {
  void on_step(const StepReport& report) override {
    if (report.step == at) kept = allocator->kept();
  }
  const CountingAllocator* allocator = nullptr;
  Step at = 0;
  std::int64_t kept = 0;
};

Scenario scenario_of(const std::string& preset, Step steps) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.dimension = kDimension;
  scenario.steps = steps;
  scenario.steps_per_epoch = 1e9;
  scenario.momentum = 0.9;
  scenario.delay = "rotate=1ms..9ms";
  return scenario;
}

Counts counts_of_run(RunConfig run, Step steps) {
  run.evaluator = nullptr;
  const CountingAllocator allocator;
  const CopyObserver observer;
  const auto watching = std::make_shared<Watching>();
  watching->allocator = &allocator;
  watching->at = steps - 2;
  const RunResult result = run_virtual(std::move(run), watching);
  EXPECT_FALSE(result.error) << result.error->message;
  return {allocator.allocated(), watching->kept, g_copies.load()};
}

// Start and end of a run cost the same whatever its length, so the difference of two runs is that
// of the steps which only one of them has.
template <class MakeRun>
Counts counts_of_steps(const MakeRun& make, Step steps) {
  constexpr Step kStart = 20;
  const Counts less = counts_of_run(make(kStart), kStart);
  const Counts more = counts_of_run(make(kStart + steps), kStart + steps);
  EXPECT_GT(less.allocated, kRanks * kModelBytes) << "the allocator is not asked";
  return {more.allocated - less.allocated, more.kept - less.kept, more.copies - less.copies};
}

// Slices of a sum, messages, and whole models. In one process a slice that arrives is the sender's
// memory, so that its sum, which is sent, takes new memory: a slice for each rank and step.
TEST(SteadyState, StepsAllocateNothingButASliceOfASumAndCopyNoModel) {
  constexpr std::int64_t kSlice = kModelBytes / kRanks;
  const std::vector<std::tuple<std::string, std::string, std::int64_t>> wirings = {
      {"sgp", "", 0}, {"osgp", "", 0}, {"ar", "direct", kSlice}, {"ar", "ring", kSlice}};
  for (const auto& [preset, all_reduce, bytes] : wirings) {
    SCOPED_TRACE(preset + " " + all_reduce);
    constexpr Step kSteps = 20;
    const Counts counts = counts_of_steps(
        [&, preset = preset, all_reduce = all_reduce](Step steps) {
          Scenario scenario = scenario_of(preset, steps);
          if (!all_reduce.empty()) scenario.set = {{"all_reduce", all_reduce}};
          return virtual_run_test::make_run(scenario);
        },
        kSteps);
    EXPECT_EQ(counts.allocated, bytes * kRanks * kSteps);
    EXPECT_EQ(counts.kept, 0);
    EXPECT_EQ(counts.copies, 0);
  }
}

// A model of 50,950 parameters, for images of 3 x 8 x 8.
torch::nn::Sequential wide_layers() {
  return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(192, 256), torch::nn::ReLU(),
                               torch::nn::Linear(256, 6));
}

std::shared_ptr<Compute> real_compute(Rank rank) {
  TorchComputeConfig config = tiny_config(wide_layers, rank, kRanks);
  config.data = tiny_images();
  return make_tiny(std::move(config));
}

// Of all ranks' gradients at the steps that a run of kStart + steps has and one of kStart has not.
std::int64_t allocated_by_gradients(Step steps) {
  std::vector<std::shared_ptr<Compute>> computes;
  std::vector<FrozenTensor> recycled(kRanks);
  for (Rank rank = 0; rank < kRanks; ++rank) computes.push_back(real_compute(rank));
  const FrozenTensor z = computes[0]->initial_parameters();
  std::int64_t before = 0;
  const CountingAllocator allocator;
  for (Step step = 0; step < 20 + steps; ++step) {
    if (step == 20) before = allocator.allocated();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      auto& own = recycled[static_cast<std::size_t>(rank)];
      GradientRequest request = tiny_request(z, step);
      request.recycled = std::move(own);
      own = computes[static_cast<std::size_t>(rank)]->gradient(std::move(request)).value;
    }
  }
  return allocator.allocated() - before;
}

// With a model of LibTorch the activations are allocated in each step, and nothing else.
TEST(SteadyState, StepsOfARealModelAllocateWhatItsGradientsDo) {
  constexpr Step kSteps = 20;
  const std::int64_t of_gradients = allocated_by_gradients(kSteps);
  for (const std::string preset : {"sgp", "osgp"}) {
    SCOPED_TRACE(preset);
    const Counts counts = counts_of_steps(
        [&](Step steps) {
          RunConfig run = virtual_run_test::make_run(scenario_of(preset, steps));
          for (Rank rank = 0; rank < kRanks; ++rank)
            run.computes[static_cast<std::size_t>(rank)] = real_compute(rank);
          return run;
        },
        kSteps);
    EXPECT_EQ(counts.allocated, of_gradients);
    EXPECT_EQ(counts.kept, 0);
  }
}

}  // namespace
}  // namespace steady_state_test
}  // namespace grapevine
