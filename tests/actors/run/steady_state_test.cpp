// What a step costs in memory once a run is under way: no allocation as large as the model, and no
// copy of it beside the one that overlap needs.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/actors/run/virtual_scenario.hpp"
#include "tests/counting_allocator.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace steady_state_test {
namespace {

using virtual_run_test::Scenario;

constexpr std::int64_t kDimension = 50'000;
constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kModelBytes = kDimension * 4;

struct Counts {
  std::int64_t allocated = 0;  // bytes, in blocks of at least 4 kB
  std::int64_t kept = 0;       // of them, not freed
  std::int64_t copies = 0;     // of as many elements as the model has, by LibTorch
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
Counts counts_of_steps(const MakeRun& make, Step steps, Step start = 20) {
  const Counts less = counts_of_run(make(start), start);
  const Counts more = counts_of_run(make(start + steps), start + steps);
  EXPECT_GT(less.allocated, kRanks * kModelBytes) << "the allocator is not asked";
  return {more.allocated - less.allocated, more.kept - less.kept, more.copies - less.copies};
}

using Keys = std::vector<std::pair<std::string, std::string>>;

Counts counts_of_wiring(const std::string& preset, const Keys& set, Step steps, Step start = 20) {
  return counts_of_steps(
      [&](Step in_all) {
        Scenario scenario = scenario_of(preset, in_all);
        scenario.set = set;
        return virtual_run_test::make_run(scenario);
      },
      steps, start);
}

// Slices of a sum, messages, and whole models. Doubling is for short vectors: it sends its sum in
// each round while it adds to it, so that each of log2 P rounds copies it.
TEST(SteadyState, StepsAllocateNothingAndCopyNoModel) {
  const std::vector<std::tuple<std::string, Keys, std::int64_t>> wirings = {
      {"sgp", {}, 0},
      {"osgp", {}, 0},
      {"d-psgd", {}, 0},
      {"ar", {{"all_reduce", "direct"}}, 0},
      {"ar", {{"all_reduce", "ring"}}, 0},
      {"ar", {{"all_reduce", "doubling"}}, 2}};
  for (const auto& [preset, set, copies] : wirings) {
    SCOPED_TRACE(preset + (set.empty() ? "" : " " + set[0].second));
    constexpr Step kSteps = 20;
    const Counts counts = counts_of_wiring(preset, set, kSteps);
    EXPECT_EQ(counts.allocated, 0);
    EXPECT_EQ(counts.kept, 0);
    EXPECT_EQ(counts.copies, copies * kRanks * kSteps);
  }
}

bool is_synchronous(const std::string& preset) {
  const std::vector<std::string>& all = virtual_run_test::kSynchronous;
  return std::find(all.begin(), all.end(), preset) != all.end();
}

// Of four steps of a rank, at most.
struct Bound {
  Keys set = {};
  std::int64_t allocated = 0;  // bytes
  std::int64_t copies = 0;     // of a model
};

// Differences and models of local steps: an exchange in four steps.
const Keys kFourLocalSteps = {{"local_steps", "4"}};

// Where a vector is added up in its own memory, but is needed once more, it is copied:
//   partial sums  gradients that were given wait again where members change
//   group         a model that is late continues without the mean, a fresh one where members change
//   local models  are packed again where members change
// Gradient tracking: x and y lie in one vector while they are mixed, to which and from which both
// are copied twice in a step; and the optimizer writes to the gradient, which is a copy of y.
// Lists of entries of at least 4 kB are messages of new memory: choco-sgd sends two lists of 5000.
// Every tenth average of wagma is of all ranks, and its slices are of another size.
const std::map<std::string, Bound> kBounds = {
    {"ad-psgd", {}},
    {"eager-solo", {{}, 0, 4}},
    {"eager-majority", {{}, 0, 4}},
    {"eager-quorum", {{}, 0, 4}},
    {"wagma", {{}, 64'000, 4}},
    {"choco-sgd", {{}, std::int64_t{4} * 2 * 5000 * 4, 0}},
    {"easgd", {kFourLocalSteps, 0, 0}},
    {"local-sgd", {kFourLocalSteps, 0, 1}},
    {"diloco", {kFourLocalSteps, 0, 0}},
    {"slowmo", {kFourLocalSteps, 0, 0}},
    {"sparseloco", {kFourLocalSteps, 0, 0}},
    {"noloco", {kFourLocalSteps, 0, 0}},
    {"decoupled-diloco", {kFourLocalSteps, 0, 1}},
    {"gradient-tracking", {{}, 0, 36}}};

// All presets; those that are not in the table allocate nothing and copy no model. Where ranks do
// not wait for each other, the most vectors that are in use at one time may come late: one for each
// rank. gem measures energies forty times in a run of at least so many steps.
TEST(SteadyState, EveryPresetStaysWithinItsBound) {
  for (const std::string& preset : virtual_run_test::kPresets) {
    SCOPED_TRACE(preset);
    constexpr Step kSteps = 40, kStart = 40;
    const auto found = kBounds.find(preset);
    const Bound bound = found == kBounds.end() ? Bound() : found->second;
    const Counts counts = counts_of_wiring(preset, bound.set, kSteps, kStart);
    const std::int64_t late = is_synchronous(preset) ? 0 : kRanks * (kModelBytes + 4096);
    EXPECT_LE(counts.allocated, bound.allocated * kRanks * kSteps / 4 + late);
    EXPECT_LE(counts.copies, bound.copies * kRanks * kSteps / 4);
  }
}

// Ranks that act as one, and groups whose models are exchanged as gradients are. The others of a
// node or group read the head's model, so that it needs one more; the head of a group keeps a
// difference until it has counted, beside the one that enters the sum.
TEST(SteadyState, NodesAndGroupsStayWithinTheirBounds) {
  const Keys in_groups = {{"level.1.ranks", "2"}, {"level.1.exchange", "aggregate"}};
  const std::vector<std::tuple<std::string, Keys, std::int64_t>> wirings = {
      {"ar", {{"hierarchy", "2"}}, 0},
      {"sgp", {{"hierarchy", "2"}}, kModelBytes / 4},
      {"osgp", {{"hierarchy", "2"}}, 0},
      {"ar", in_groups, kModelBytes * 3 / 2},
      {"sgp", in_groups, kModelBytes * 3 / 2}};
  for (const auto& [preset, set, allocated] : wirings) {
    SCOPED_TRACE(preset + " " + set[0].first);
    constexpr Step kSteps = 20;
    const Counts counts = counts_of_wiring(preset, set, kSteps);
    EXPECT_LE(counts.allocated, allocated * kRanks * kSteps);
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
