// A training step on a device that puts everything off: tests/gpu/lazy_device.hpp.
#include "gpu/memory/transfers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace transfers_test {

using Log = std::vector<std::string>;

FrozenTensor point(const Compute& compute, std::int64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return FrozenTensor::freeze(at::randn({compute.dimension()}, generator));
}

torch::nn::Sequential layers_with_everything() {
  return torch::nn::Sequential(torch::nn::Linear(3, 40), torch::nn::BatchNorm1d(40),
                               std::make_shared<TinyDropout>(), torch::nn::Linear(40, 6));
}

// Each parameter begins at a multiple of 128 bytes: they are views of the z that was uploaded.
torch::nn::Sequential layers_at_lines() {
  return torch::nn::Sequential(torch::nn::Linear(3, 32), torch::nn::BatchNorm1d(32),
                               std::make_shared<TinyDropout>(), torch::nn::Linear(32, 6));
}

void expect_same(const Gradient& a, const Gradient& b) {
  ASSERT_EQ(a.error, "");
  ASSERT_EQ(b.error, "");
  EXPECT_TRUE(a.value.read().equal(b.value.read()));
  EXPECT_TRUE(a.buffers.read().equal(b.buffers.read()));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.top1, b.top1);
  EXPECT_EQ(a.top5, b.top5);
  EXPECT_EQ(a.samples, b.samples);
}

// Whatever runs late or early within what waits and events allow, results are those of the CPU;
// also when steps repeat or jump, memory is recycled, and others go on reading older results.
TEST(Transfers, AnyOrderThatTheMarksAllowGivesTheSameBits) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TorchComputeConfig config =
        tiny_config(seed % 2 == 0 ? layers_with_everything : layers_at_lines);
    const auto cpu = make_tiny(config);
    const auto device = std::make_shared<LazyDevice>(seed);
    config.runtime = device;
    const auto lazy = make_tiny(config);
    std::mt19937_64 random(seed + 100);
    std::vector<std::pair<FrozenTensor, at::Tensor>> readers;  // result, its bytes then
    FrozenTensor buffers;
    FrozenTensor recycled;
    Step step = 0;
    for (int i = 0; i < 25; ++i) {
      GradientRequest request = tiny_request(point(*cpu, i), step);
      request.buffers = buffers;
      const Gradient expected = cpu->gradient(request);
      request.recycled = std::move(recycled);
      FrozenTensor mine = request.z;
      request.z = {};
      request.z = FrozenTensor::freeze(std::move(mine).thaw());
      const FrozenTensor z = request.z;
      Gradient result = lazy->gradient(std::move(request));
      expect_same(result, expected);
      EXPECT_TRUE(z.sole_owner());
      EXPECT_TRUE(result.value.sole_owner());
      readers.emplace_back(result.buffers, result.buffers.read().clone());
      if (random() % 2 == 0)
        recycled = std::move(result.value);
      else
        readers.emplace_back(result.value, result.value.read().clone());
      if (readers.size() > 6) readers.erase(readers.begin());
      if (random() % 4 == 0) device->settle();
      for (const auto& [frozen, bytes] : readers) EXPECT_TRUE(frozen.read().equal(bytes));
      buffers = expected.buffers;
      step = random() % 5 == 0 ? static_cast<Step>(random() % 8) : step + 1;
    }
    const auto a = cpu->evaluate(point(*cpu, 1), buffers).value();
    const auto b = lazy->evaluate(point(*cpu, 1), buffers).value();
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.top1, b.top1);
  }
}

// Fast kernels read whole lines; where z does not give each parameter a line of its own to begin
// at, it is copied. In the host's memory it is not.
TEST(Transfers, OnADeviceEachParameterBeginsAtALine) {
  for (const auto& layers : {layers_with_everything, layers_at_lines}) {
    std::vector<std::uintptr_t> begins;
    const auto make = [&](bool on_device) {
      TorchComputeConfig config = tiny_config(layers);
      config.model = watched_factory(layers, [&begins](Model& model) {
        begins.clear();
        for (const NamedTensor& each : model.parameters())
          begins.push_back(reinterpret_cast<std::uintptr_t>(each.tensor.data_ptr()));
      });
      if (on_device) config.runtime = std::make_shared<LazyDevice>();
      return make_tiny(config);
    };
    const auto device = make(true);
    const FrozenTensor z = point(*device, 3);
    ASSERT_EQ(device->gradient(tiny_request(z)).error, "");
    ASSERT_FALSE(begins.empty());
    const std::uintptr_t first = begins.front();
    for (const std::uintptr_t begin : begins) {
      EXPECT_EQ(begin % 64, 0U);  // of the host's allocator
      if (layers == layers_at_lines) {
        EXPECT_LT(begin - first, static_cast<std::uintptr_t>(4 * z.numel())) << "a copy";
      }
    }
    const auto host = make(false);
    ASSERT_EQ(host->gradient(tiny_request(z)).error, "");
    EXPECT_EQ(begins.front(), reinterpret_cast<std::uintptr_t>(z.raw()));
  }
}

Log log_of_step(LazyDevice& device, Compute& compute, Step step) {
  device.log.clear();
  EXPECT_EQ(compute.gradient(tiny_request(compute.initial_parameters(), step)).error, "");
  return device.log;
}

std::ptrdiff_t place(const Log& log, const std::string& what) {
  return std::find(log.begin(), log.end(), what) - log.begin();
}

// The whole of a step after the first, in order: see gpu/memory/transfers.hpp.
TEST(Transfers, AStepWaitsOnceAndForItsOwnCopies) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = device;
  const auto compute = make_tiny(config);
  log_of_step(*device, *compute, 0);
  const Log expected = {"enter upload",
                        "upload waits for compute",
                        "copy upload",  // z
                        "enter upload",
                        "upload waits for compute",
                        "copy upload",  // buffers
                        "compute waits for upload",
                        "compute waits for download",
                        "enter compute",
                        "download waits for compute",
                        "enter download",
                        "record on download",
                        "copy download",  // gradient
                        "enter download",
                        "record on download",
                        "copy download",  // buffers
                        "enter download",
                        "record on download",
                        "copy download",  // figures
                        "enter upload",
                        "copy upload",
                        "copy upload",  // the next batch
                        "record on compute",
                        "record on compute",
                        "host waits for download"};
  EXPECT_EQ(log_of_step(*device, *compute, 1), expected);
}

// All memory that one stream's copies fill and another's work reads is known to both before its
// handle can end: of a batch in each step, of z and buffers when their places are made.
TEST(Transfers, PlacesAreSharedWhenTheyAreMade) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = device;
  const auto compute = make_tiny(config);
  const Log log = log_of_step(*device, *compute, 0);
  const Log expected = {"enter upload",
                        "copy upload",
                        "copy upload",  // the batch
                        "record on compute",
                        "record on compute",
                        "enter upload",
                        "upload waits for compute",
                        "record on compute",
                        "copy upload",  // z
                        "enter upload",
                        "upload waits for compute",
                        "record on compute",
                        "copy upload",  // buffers
                        "compute waits for upload"};
  ASSERT_GE(log.size(), expected.size());
  EXPECT_EQ(Log(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(expected.size())), expected);
}

// The next batch goes up while this step computes and its results come down: before the host waits,
// and without waiting for the computation.
TEST(Transfers, TheNextBatchGoesUpBesideTheStep) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = device;
  const auto data = std::make_shared<const TinyData>(tiny_info());
  config.data = data;
  const auto compute = make_tiny(config);
  log_of_step(*device, *compute, 0);
  const int reads = data->reads;
  const Log log = log_of_step(*device, *compute, 1);
  EXPECT_EQ(data->reads, reads + 1) << "step 1 had its batch; it read that of step 2";
  const auto downloads = place(log, "download waits for compute");
  const auto host = place(log, "host waits for download");
  const auto uploads = std::count(log.begin() + downloads, log.begin() + host, "copy upload");
  EXPECT_EQ(uploads, 2);
  EXPECT_EQ(std::count(log.begin() + downloads, log.end(), "upload waits for compute"), 0);
}

// Closed, it lets nobody through; a caller whose timeout passes meanwhile is noted.
class Gate {
 public:
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!opened_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; })) forced_ = true;
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  bool forced() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return forced_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  bool forced_ = false;
};

// On a slow disk the batch of the next step may come long after the gradient of this one.
TEST(Transfers, AGradientDoesNotWaitForTheNextBatch) {
  TorchComputeConfig config = tiny_config(layers_with_everything);
  const auto cpu = make_tiny(config);
  Gate gate;
  const auto first = Sampler::make(config.seed, 40, 2, 5).value().indices(0, 0);
  DataInfo slow = tiny_info();
  slow.slow = true;
  config.data = std::make_shared<const TinyData>(
      slow, [&](const std::vector<std::int64_t>& indices) -> Expected<void> {
        const bool is_check = indices.size() == 2;
        if (!is_check && indices != first) gate.pass();
        return {};
      });
  config.runtime = std::make_shared<LazyDevice>();
  const auto compute = make_tiny(config);
  const FrozenTensor z = compute->initial_parameters();
  const Gradient result = compute->gradient(tiny_request(z, 0));
  gate.open();
  EXPECT_FALSE(gate.forced());
  expect_same(result, cpu->gradient(tiny_request(z, 0)));
  for (Step step = 1; step < 8; ++step)
    expect_same(compute->gradient(tiny_request(z, step)), cpu->gradient(tiny_request(z, step)));
}

TEST(Transfers, ReadingAheadCountsForTheStepOfTheBatch) {
  constexpr std::chrono::milliseconds kRead{40};
  const double read_seconds = std::chrono::duration<double>(kRead).count();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = std::make_shared<LazyDevice>();
  config.data = std::make_shared<const TinyData>(
      tiny_info(), [&](const std::vector<std::int64_t>&) -> Expected<void> {
        std::this_thread::sleep_for(kRead);
        return {};
      });
  const auto compute = make_tiny(config);
  for (Step step = 0; step < 3; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const Gradient result = compute->gradient(tiny_request(compute->initial_parameters(), step));
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
    EXPECT_GE(result.data_seconds, read_seconds) << "step " << step;
    EXPECT_LE(result.compute_seconds, all.count() - read_seconds) << "step " << step;
    EXPECT_GT(result.compute_seconds, 0) << "step " << step;
  }
}

TEST(Transfers, AFailedReadAheadIsAnErrorOfItsOwnStepOnly) {
  bool broken = false;
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = std::make_shared<LazyDevice>();
  config.data = std::make_shared<const TinyData>(
      tiny_info(), [&broken](const std::vector<std::int64_t>&) -> Expected<void> {
        if (broken) return bad_input("file x: byte 7");
        return {};
      });
  const auto compute = make_tiny(config);
  const FrozenTensor z = compute->initial_parameters();
  EXPECT_EQ(compute->gradient(tiny_request(z, 0)).error, "");
  broken = true;
  EXPECT_EQ(compute->gradient(tiny_request(z, 1)).error, "");  // its batch was there already
  EXPECT_NE(compute->gradient(tiny_request(z, 2)).error.find("file x: byte 7"), std::string::npos);
  broken = false;
  EXPECT_EQ(compute->gradient(tiny_request(z, 2)).error, "");
}

TEST(Transfers, ADeviceThatDoesNotAnswerIsAnErrorAndMayRecover) {
  TorchComputeConfig config = tiny_config(layers_with_everything);
  const auto cpu = make_tiny(config);
  const auto device = std::make_shared<LazyDevice>();
  config.runtime = device;
  const auto compute = make_tiny(config);
  const FrozenTensor z = compute->initial_parameters();
  device->dead = true;
  EXPECT_EQ(compute->gradient(tiny_request(z, 0)).error, "rank 0: the device does not answer");
  EXPECT_TRUE(z.defined());
  device->dead = false;
  for (Step step = 0; step < 3; ++step)
    expect_same(compute->gradient(tiny_request(z, step)), cpu->gradient(tiny_request(z, step)));
}

TEST(Transfers, EvaluationWaitsForADeviceWithALimit) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = device;
  const auto compute = make_tiny(config);
  const FrozenTensor z = compute->initial_parameters();
  device->dead = true;
  const auto result = compute->evaluate(z, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::timeout);
  device->dead = false;
  EXPECT_TRUE(compute->evaluate(z, {}).ok());
}

std::ptrdiff_t blocked(const LazyDevice& device) {
  return std::count_if(device.log.begin(), device.log.end(),
                       [](const std::string& what) { return what.rfind("host blocks", 0) == 0; });
}

// Copies from and to ordinary memory block the host until what is before them in their stream has
// run: all of that is waited for before, with a limit.
TEST(Transfers, WithoutPageLockedMemoryNothingBlocksWithoutALimit) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TorchComputeConfig config = tiny_config(layers_with_everything);
    const auto cpu = make_tiny(config);
    const auto device = std::make_shared<LazyDevice>(seed);
    device->pages = false;
    config.runtime = device;
    const auto compute = make_tiny(config);
    for (Step step = 0; step < 6; ++step) {
      const FrozenTensor z = point(*cpu, step);
      const Gradient result = compute->gradient(tiny_request(z, step));
      expect_same(result, cpu->gradient(tiny_request(z, step)));
      EXPECT_TRUE(result.value.sole_owner());
    }
    const FrozenTensor z = point(*cpu, 1);
    EXPECT_EQ(compute->evaluate(z, {})->loss, cpu->evaluate(z, {})->loss);
    device->dead = true;
    const std::string error = compute->gradient(tiny_request(z, 9)).error;
    EXPECT_NE(error.find("the device does not answer"), std::string::npos) << error;
    EXPECT_EQ(blocked(*device), 0);
    device->dead = false;
    expect_same(compute->gradient(tiny_request(z, 9)), cpu->gradient(tiny_request(z, 9)));
  }
}

TEST(Transfers, StagingMemoryIsReused) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(layers_with_everything);
  config.runtime = device;
  const auto compute = make_tiny(config);
  for (Step step = 0; step < 5; ++step) log_of_step(*device, *compute, step);
  const int before = device->allocations;
  for (Step step = 5; step < 25; ++step) log_of_step(*device, *compute, step);
  EXPECT_EQ(device->allocations, before);
}

// Parts of a tensor are staged one after the other: 8 MiB each, in a ring that is reused when its
// copies have crossed the bus.
TEST(Transfers, LargeTensorsGoUpInParts) {
  for (const std::int64_t mib : {11, 64, 65, 150}) {
    SCOPED_TRACE(mib);
    const auto device = std::make_shared<LazyDevice>(static_cast<std::uint64_t>(mib % 2 * 7));
    Transfers transfers(device, std::size_t{1} << 30, from_seconds(10));
    const at::Tensor host = at::arange((mib << 20) / 4 + 3, at::kFloat);
    Transfers::DeviceSlot spot;
    for (int round = 0; round < 3; ++round) {
      const at::Tensor expected = host + round;
      device->log.clear();
      const at::Tensor up = transfers.upload(expected, spot);
      EXPECT_EQ(std::count(device->log.begin(), device->log.end(), "copy upload"), mib / 8 + 1);
      const auto scope = transfers.begin_compute();
      EXPECT_TRUE(up.equal(expected));
      EXPECT_NE(up.data_ptr(), expected.data_ptr());
    }
    EXPECT_LE(device->pinned_bytes, Transfers::kRingBytes);
  }
}

// The slices of several devices, each in its place; short ones and empty ones at the end.
TEST(Transfers, SlicesGoUpToTheirPlaces) {
  const std::int64_t large = 5 * Transfers::kPartBytes / 4 + 3;  // three parts for a half
  for (const std::int64_t d : {std::int64_t{1}, std::int64_t{7}, std::int64_t{12}, large})
    for (const std::size_t count : {1U, 2U, 3U, 4U}) {
      SCOPED_TRACE(testing::Message() << d << " elements in " << count << " slices");
      const auto n = static_cast<std::int64_t>(count);
      const std::int64_t most = (d + n - 1) / n;
      const FrozenTensor z = FrozenTensor::freeze(at::arange(d, at::kFloat));
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const auto device = std::make_shared<LazyDevice>();
        Transfers transfers(device, Transfers::kRingBytes + (1 << 20), from_seconds(5.0));
        Transfers::DeviceSlot slot;
        const at::Tensor there = transfers.upload_slice(z, i, count, slot);
        ASSERT_EQ(there.sizes(), at::IntArrayRef({most * n}));
        const auto scope = transfers.begin_compute();
        const std::int64_t begin = std::min(d, static_cast<std::int64_t>(i) * most);
        const std::int64_t size = std::min(most, d - begin);
        EXPECT_TRUE(there.narrow(0, begin, size).equal(z.read().narrow(0, begin, size)));
        EXPECT_EQ(device->uploaded_bytes, sizeof(float) * static_cast<std::size_t>(size));
        bytes += device->uploaded_bytes;
        const void* const memory = there.data_ptr();
        EXPECT_EQ(transfers.upload_slice(z, i, count, slot).data_ptr(), memory);
      }
      EXPECT_EQ(bytes, sizeof(float) * static_cast<std::size_t>(d));
    }
}

TEST(Transfers, ARingThatIsFullWaitsWithALimit) {
  const auto device = std::make_shared<LazyDevice>();
  Transfers transfers(device, std::size_t{1} << 30, from_seconds(10));
  const at::Tensor host = at::zeros({(150 << 20) / 4});
  Transfers::DeviceSlot spot;
  device->dead = true;
  EXPECT_THROW(transfers.upload(host, spot), std::runtime_error);
  device->dead = false;
  const at::Tensor up = transfers.upload(host + 1, spot);
  const auto scope = transfers.begin_compute();
  EXPECT_TRUE(up.eq(1).all().item<bool>());
}

// With less pinned memory than the ring wants, what is left goes up through ordinary memory.
TEST(Transfers, LargeTensorsGoUpWithFewPinnedPages) {
  const auto device = std::make_shared<LazyDevice>();
  Transfers transfers(device, std::size_t{20} << 20, from_seconds(10));
  const at::Tensor host = at::arange((50 << 20) / 4, at::kFloat);
  Transfers::DeviceSlot spot;
  const at::Tensor up = transfers.upload(host, spot);
  const auto scope = transfers.begin_compute();
  EXPECT_TRUE(up.equal(host));
  EXPECT_EQ(blocked(*device), 0);
}

// Of a model's size there are only gradients: three at most are pinned, and z is not.
TEST(Transfers, AWorkerPinsThreeGradientsAndARing) {
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config([] {
    return torch::nn::Sequential(torch::nn::Linear(3, 1000), torch::nn::Linear(1000, 8000),
                                 torch::nn::Linear(8000, 6));
  });
  config.runtime = device;
  const auto compute = make_tiny(config);
  const auto model = sizeof(float) * static_cast<std::size_t>(compute->dimension());
  std::vector<Gradient> kept;
  for (Step step = 0; step < 8; ++step) {
    kept.push_back(compute->gradient(tiny_request(compute->initial_parameters(), step)));
    ASSERT_EQ(kept.back().error, "");
  }
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_LE(device->pinned_bytes, 3 * (model + 2 * kMiB) + Transfers::kRingBytes + 64 * kMiB);
  EXPECT_TRUE(kept[0].value.read().equal(
      make_tiny(tiny_config([] {
        return torch::nn::Sequential(torch::nn::Linear(3, 1000), torch::nn::Linear(1000, 8000),
                                     torch::nn::Linear(8000, 6));
      }))
          ->gradient(tiny_request(compute->initial_parameters(), 0))
          .value.read()));
}

}  // namespace transfers_test
}  // namespace grapevine
