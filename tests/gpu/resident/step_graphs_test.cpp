// Steps that are replayed as graphs of the fake device against steps that are not.
#include "gpu/model/step_graphs.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/resident/replicas_on_devices.hpp"
#include "tests/gpu/tiny_compute.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace step_graphs_test {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kWarmUps = StepGraphs::kWarmUps;

std::uint64_t replays() { return fake::calls("graph replay"); }

// Of which the batches with one of the last samples are one sample shorter.
class ShortBatches final : public TinyData {
 public:
  ShortBatches() : TinyData(tiny_info()) {}
  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    std::vector<std::int64_t> fewer = indices;
    const bool has_last = *std::max_element(fewer.begin(), fewer.end()) >= 38;
    if (split == Split::train && has_last) fewer.pop_back();
    return TinyData::batch(split, fewer, augment_seed);
  }
};

// The same worker, with graphs and without, each on a device of its own.
class StepGraphsTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  static std::unique_ptr<Compute> worker(TorchComputeConfig config, bool graphs) {
    config.runtime = fake::open_device(0, graphs ? "worker with graphs" : "worker");
    config.graphs = graphs;
    return make_tiny(std::move(config));
  }
  // z as a peer has it: written by its exchange stream, at another address in each step.
  FrozenTensor resident(const FrozenTensor& z) {
    const auto scope = peer_->enter(Stream::exchange);
    at::Tensor here = at::empty(z.sizes(), at::TensorOptions(at::kFloat).device(fake::device(0)));
    here.copy_(z.read());
    return FrozenTensor::freeze(std::move(here));
  }
  static void expect_same(const Gradient& a, const Gradient& b) {
    ASSERT_EQ(a.error, "");
    ASSERT_EQ(b.error, "");
    EXPECT_TRUE(fake::peek(a.value.read()).equal(fake::peek(b.value.read())));
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(a.top1 == b.top1 || (std::isnan(a.top1) && std::isnan(b.top1)));
    EXPECT_EQ(a.samples, b.samples);
    ASSERT_EQ(a.buffers.defined(), b.buffers.defined());
    if (b.buffers.defined()) {
      EXPECT_TRUE(fake::peek(a.buffers.read()).equal(fake::peek(b.buffers.read())));
    }
  }

  // Trains both from `begin` on, with a learning rate that changes, evaluates between the steps,
  // and expects equal bits. `on_device`: whether z is there, by step.
  struct Training {
    FrozenTensor z, buffers;
  };
  Training train(Compute& eager, Compute& graphs, Step begin, Step steps, Training at,
                 const std::function<bool(Step)>& on_device) {
    FrozenTensor recycled;
    for (Step step = begin; step < begin + steps; ++step) {
      SCOPED_TRACE(step);
      GradientRequest request = tiny_request(at.z, step);
      request.buffers = at.buffers;
      const Gradient expected = eager.gradient(request);
      if (on_device(step)) request.z = resident(at.z);
      request.recycled = std::move(recycled);
      Gradient found = graphs.gradient(std::move(request));
      expect_same(found, expected);
      if (testing::Test::HasFailure()) return at;
      const double lr = 0.5 / static_cast<double>(1 + step / 4);
      at.z = FrozenTensor::freeze(at.z.read() - lr * expected.value.read());
      at.buffers = expected.buffers;
      if (step % 2 == 0 && !on_device(step)) recycled = std::move(found.value);
      if (step % 3 == 1) {
        EXPECT_EQ(graphs.evaluate(at.z, at.buffers)->loss, eager.evaluate(at.z, at.buffers)->loss);
      }
    }
    return at;
  }

  const std::shared_ptr<DeviceRuntime> peer_ = fake::open_device(0, "peer");
};

bool never(Step) { return false; }

// Each parameter begins where a GPU's kernels can read it, so that none is copied out of z.
torch::nn::Sequential aligned_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 6));
}

TEST_F(StepGraphsTest, ReplayedStepsHaveTheBitsOfOthers) {
  struct Case {
    TorchComputeConfig config;
    std::string name;
  };
  std::vector<Case> cases = {{tiny_config(tiny_layers), "batch-norm"},
                             {tiny_config(plain_layers), "without buffers"},
                             {tiny_config(aligned_layers), "views of z"},
                             {tiny_config(tiny_layers, 1, 2, 6), "passes"},
                             {tiny_config(tiny_layers), "bf16"}};
  cases[3].config.passes = 2;
  cases[4].config.precision = Precision::bf16;
  std::mt19937_64 random(17);
  const std::vector<std::function<bool(Step)>> places = {never, [](Step) { return true; },
                                                         [&](Step) { return random() % 2 == 0; }};
  constexpr Step kSteps = 14;
  for (Case& each : cases) {
    SCOPED_TRACE(each.name);
    for (std::size_t place = 0; place < places.size(); ++place) {
      SCOPED_TRACE(place);
      fake::reset();
      const auto eager = worker(each.config, false), graphs = worker(each.config, true);
      train(*eager, *graphs, 0, kSteps, {eager->initial_parameters(), {}}, places[place]);
      EXPECT_EQ(replays(), static_cast<std::uint64_t>(kSteps - kWarmUps));
      EXPECT_THAT(fake::violations(), IsEmpty());
      if (HasFailure()) return;
    }
  }
}

// Steps with accuracies have a graph of their own, after one such step without it.
TEST_F(StepGraphsTest, AccuraciesAreInTheStepsThatHaveThem) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.accuracy_every = 5;
  config.last_step = 20;
  const auto eager = worker(config, false), graphs = worker(config, true);
  const LogLines log;
  train(*eager, *graphs, 1, 19, {eager->initial_parameters(), {}}, never);
  EXPECT_EQ(replays(), 19U - kWarmUps - 1) << "step 5 is the first one with accuracies";
  EXPECT_THAT(log.text(), HasSubstr("rank 0: captured a CUDA graph of the forward and backward "
                                    "pass: steps replay it\n"));
  EXPECT_THAT(log.text(), HasSubstr("pass, with accuracies: steps replay it\n"));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(StepGraphsTest, AShorterBatchIsComputedWithoutTheGraph) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.data = std::make_shared<const ShortBatches>();
  const auto eager = worker(config, false), graphs = worker(config, true);
  const LogLines log;
  constexpr Step kSteps = 24;  // six epochs of four steps each
  std::uint64_t shorter = 0;
  Step last_short = -1;
  for (Step step = 0; step < kSteps; ++step) {
    const Gradient each = eager->gradient(tiny_request(eager->initial_parameters(), step));
    if (each.samples == 4) ++shorter, last_short = step;
  }
  ASSERT_GT(shorter, 1U);
  ASSERT_GT(last_short, 2 * kWarmUps);
  train(*eager, *graphs, 0, kSteps, {eager->initial_parameters(), {}}, never);
  EXPECT_GT(replays(), 0U);
  EXPECT_LE(replays(), kSteps - kWarmUps - 1U);
  const std::string line = "its batch has another shape than the captured ones";
  const std::string text = log.text();
  EXPECT_NE(text.find(line), std::string::npos) << text;
  EXPECT_EQ(text.find(line), text.rfind(line)) << "once";
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// A resumed worker captures anew.
TEST_F(StepGraphsTest, AResumedWorkerContinuesBitForBit) {
  const TorchComputeConfig config = tiny_config(tiny_layers);
  const auto eager = worker(config, false);
  auto graphs = worker(config, true);
  const Training half = train(*eager, *graphs, 0, 7, {eager->initial_parameters(), {}}, never);
  graphs = worker(config, true);
  train(*eager, *graphs, 7, 7, half, never);
  EXPECT_EQ(replays(), 2U * (7 - kWarmUps));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// Each replica has graphs of its own; the captures and replays of both are concurrent. A group is
// launched during the backward pass, which no graph does.
TEST_F(StepGraphsTest, ReplicasWithoutAGroupAreReplayed) {
  constexpr Step kSteps = 8;
  TorchComputeConfig config = tiny_config(tiny_layers, 0, 1, 8);
  struct Worker {
    std::vector<int> devices;
    bool grouped;
  };
  const std::vector<Worker> workers = {{{0, 1}, false}, {{0, 0}, false}, {{0, 1}, true}};
  const auto replicated = [&config](const Worker& of, bool graphs) {
    config.graphs = graphs;
    return replicas_on_devices(of.devices, of.grouped, config, graphs ? "graphs" : "eager");
  };
  std::mt19937_64 random(23);
  const std::vector<std::function<bool(Step)>> places = {[](Step) { return true; },
                                                         [&](Step) { return random() % 2 == 0; }};
  for (const Worker& of : workers)
    for (std::size_t place = 0; place < places.size(); ++place) {
      SCOPED_TRACE(testing::Message() << "devices 0 and " << of.devices[1] << ", grouped "
                                      << of.grouped << ", place " << place);
      fake::reset();
      const auto eager = replicated(of, false), graphs = replicated(of, true);
      const LogLines log;
      train(*eager, *graphs, 0, kSteps, {eager->initial_parameters(), {}}, places[place]);
      const std::string why = "--cuda-graphs has no effect: its group reduces gradients";
      EXPECT_EQ(log.text().find(why) != std::string::npos, of.grouped) << log.text();
      EXPECT_EQ(replays(), of.grouped ? 0U : 2U * (kSteps - kWarmUps));
      EXPECT_THAT(fake::violations(), IsEmpty());
      if (HasFailure()) return;
    }
}

torch::nn::Sequential dropout_layers() { return tiny_layers_with_dropout(); }

TEST_F(StepGraphsTest, AModelThatDrawsIsNeverReplayed) {
  const TorchComputeConfig config = tiny_config(dropout_layers);
  const auto eager = worker(config, false), graphs = worker(config, true);
  const LogLines log;
  train(*eager, *graphs, 0, 8, {eager->initial_parameters(), {}}, never);
  EXPECT_EQ(replays(), 0U);
  EXPECT_THAT(log.text(), HasSubstr("[warning] --cuda-graphs has no effect: model 'net' draws "
                                    "random numbers"));
}

// The log has the reason once.
TEST_F(StepGraphsTest, WhatCannotBeCapturedHasItsReasonInTheLog) {
  DataInfo sequences = tiny_info();
  sequences.by_length = true;
  TorchComputeConfig long_ones = tiny_config(plain_layers), scales = long_ones, lazy = long_ones;
  long_ones.data = std::make_shared<const TinyData>(sequences);
  scales.scale_loss = true;
  lazy.runtime = std::make_shared<LazyDevice>();
  lazy.graphs = true;
  const auto steps_of = [](Compute& compute) {
    const LogLines log;
    for (Step step = 0; step < 6; ++step)
      EXPECT_EQ(compute.gradient(tiny_request(compute.initial_parameters(), step)).error, "");
    const std::string text = log.text(), head = "[warning] --cuda-graphs has no effect: ";
    EXPECT_EQ(text.find(head), text.rfind(head)) << text;
    return text;
  };
  EXPECT_THAT(steps_of(*worker(long_ones, true)),
              HasSubstr("no effect: the batches of data 'tiny' differ in length"));
  EXPECT_THAT(steps_of(*worker(scales, true)),
              HasSubstr("no effect: the factor of fp16's loss changes between steps"));
  EXPECT_THAT(steps_of(*make_tiny(lazy)), HasSubstr("no effect: the device has no graphs"));
  EXPECT_THAT(steps_of(*worker(long_ones, false)), Not(HasSubstr("--cuda-graphs")));
  EXPECT_EQ(replays(), 0U);
}

// A user learns of it by one line, whatever the number of workers; only one process warns.
TEST_F(StepGraphsTest, OneOfAllWorkersWarns) {
  const auto lines_of = [](bool warns) {
    const auto notice = std::make_shared<GraphsNotice>(warns);
    const LogLines log;
    for (Rank rank = 0; rank < 3; ++rank) {
      TorchComputeConfig config = tiny_config(dropout_layers, rank, 3);
      config.graphs_notice = notice;
      const auto compute = worker(config, true);
      for (Step step = 0; step < 3; ++step)
        EXPECT_EQ(compute->gradient(tiny_request(compute->initial_parameters(), step)).error, "");
    }
    std::vector<std::string> lines;
    std::istringstream text(log.text());
    const std::string what = "--cuda-graphs has no effect";
    for (std::string line; std::getline(text, line);)
      if (line.find(what) != std::string::npos) lines.push_back(line.substr(line.rfind("] ") + 2));
    for (std::string& line : lines) line.resize(line.find(what) + what.size());
    const bool warning = log.text().find("[warning]") != std::string::npos;
    EXPECT_EQ(warning, warns);
    return lines;
  };
  EXPECT_THAT(lines_of(true),
              ElementsAre("--cuda-graphs has no effect", "rank 1: --cuda-graphs has no effect",
                          "rank 2: --cuda-graphs has no effect"));
  EXPECT_THAT(lines_of(false), ElementsAre("rank 0: --cuda-graphs has no effect",
                                           "rank 1: --cuda-graphs has no effect",
                                           "rank 2: --cuda-graphs has no effect"));
}

// Batches of which no two in a row have one length.
class ChangingBatches final : public TinyData {
 public:
  ChangingBatches() : TinyData(tiny_info()) {}
  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    std::vector<std::int64_t> fewer = indices;
    // That of the fit check has two samples.
    if (split == Split::train && indices.size() > 2 && calls_++ % 2 == 0) fewer.pop_back();
    return TinyData::batch(split, fewer, augment_seed);
  }

 private:
  mutable std::atomic<int> calls_{0};
};

// At the end of the run, or once patience ends; not where a step has been replayed.
TEST_F(StepGraphsTest, ARunWithoutAReplaySaysSo) {
  // The step in which the log gets the line, whose end is given; -1: none has.
  const auto reported_in = [](bool changing, Step last_step, Step steps, const std::string& end) {
    const std::string begin = "--cuda-graphs has no effect", reason = ": no step is replayed";
    TorchComputeConfig config = tiny_config(plain_layers);
    if (changing) config.data = std::make_shared<const ChangingBatches>();
    config.last_step = last_step;
    const auto compute = worker(config, true);
    const LogLines log;
    Step found = -1;
    for (Step step = 0; step < steps; ++step) {
      EXPECT_EQ(compute->gradient(tiny_request(compute->initial_parameters(), step)).error, "");
      const bool now = log.text().find("[warning] " + begin + reason + end) != std::string::npos;
      if (now && found < 0) found = step;
    }
    const std::string text = log.text();
    EXPECT_EQ(text.find(begin), text.rfind(begin)) << "once: " << text;
    EXPECT_EQ(text.find(begin) != std::string::npos, found >= 0) << text;
    return found;
  };
  const std::string end = ": 3 steps in a row with batches of one shape come before the first\n";
  EXPECT_EQ(reported_in(true, 9, 9, end), 8);
  EXPECT_EQ(reported_in(false, 3, 3, end), 2);
  EXPECT_EQ(reported_in(false, 4, 4, end), -1);
  constexpr int kPatience = StepGraphs::kPatience;
  EXPECT_EQ(reported_in(true, 1000, kPatience + 5, " so far" + end), kPatience - 1);
}

// Reads a number of the device on the host.
class HostWait : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return x * (x.sum().item<float>() > 1e9F ? 2 : 1); }
};

// Takes numbers of the host to the device.
class HostCopy : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return x + at::zeros({6}).to(x.device()); }
};

template <class Layer>
torch::nn::Sequential with_layer() {
  return torch::nn::Sequential(torch::nn::Linear(3, 6), std::make_shared<Layer>());
}

TEST_F(StepGraphsTest, APassThatNeedsTheHostIsAnErrorOfItsStep) {
  const std::string begin =
      "rank 0: the pass through model 'net' cannot be captured in a CUDA graph: ";
  const std::string end = " is not permitted when a stream is capturing: leave out --cuda-graphs";
  const auto error_of = [](torch::nn::Sequential (*layers)()) {
    const auto compute = worker(tiny_config(layers), true);
    std::string error;
    Step step = 0;
    for (; step < 6 && error.empty(); ++step)
      error = compute->gradient(tiny_request(compute->initial_parameters(), step)).error;
    EXPECT_EQ(step, kWarmUps + 1);
    return error;
  };
  EXPECT_EQ(error_of(with_layer<HostWait>), begin + "a wait of the host" + end);
  EXPECT_EQ(error_of(with_layer<HostCopy>), begin + "a copy from the host" + end);
}

// The device of the tests notices what would be wrong.
TEST_F(StepGraphsTest, MemoryThatEndsBeforeAReplayIsFound) {
  const auto device = fake::open_device(0, "worker");
  const auto options = at::TensorOptions(at::kFloat).device(fake::device(0));
  const auto scope = device->enter(Stream::compute);
  at::Tensor x = at::ones({4}, options), y = at::empty({4}, options);
  const auto graph = device->capture([&] { y.copy_(x * 2); });
  graph->replay(Stream::compute);
  EXPECT_THAT(fake::violations(), IsEmpty());
  EXPECT_TRUE(fake::peek(y).eq(2).all().item<bool>());
  x = at::ones({4}, options);
  graph->replay(Stream::compute);
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("memory that was freed after its capture")));
}

TEST_F(StepGraphsTest, AReplayWaitsForNothingByItself) {
  const auto device = fake::open_device(0, "worker");
  const auto options = at::TensorOptions(at::kFloat).device(fake::device(0));
  at::Tensor x, y;
  std::unique_ptr<DeviceGraph> graph;
  {
    const auto scope = device->enter(Stream::compute);
    x = at::ones({4}, options);
    y = at::empty({4}, options);
    graph = device->capture([&] { y.copy_(x * 2); });
  }
  device->wait(Stream::upload, device->record(Stream::compute));
  {
    const auto scope = device->enter(Stream::upload);
    x.fill_(3);
  }
  graph->replay(Stream::compute);
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("reads what was written by")));
}

TEST_F(StepGraphsTest, WaitsOfTheHostWithinACaptureAreRefused) {
  const auto device = fake::open_device(0, "worker");
  EXPECT_THROW(device->capture([&] {
    static_cast<void>(device->host_wait(device->record(Stream::compute), std::chrono::seconds(1)));
  }),
               c10::Error);
  EXPECT_THROW(device->capture([&] { device->pinned_memory(64); }), c10::Error);
}

}  // namespace step_graphs_test
}  // namespace grapevine
