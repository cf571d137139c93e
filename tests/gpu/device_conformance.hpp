// What every DeviceRuntime keeps to. A binary that has one instantiates DeviceConformance with it.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/memory/transfers.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {

struct DeviceUnderTest {
  std::string name;
  std::function<std::shared_ptr<DeviceRuntime>()> open;
  std::string missing;  // why it cannot be opened here; empty: it can
};

inline std::string name_of(const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

class DeviceConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  static constexpr Duration kTimeout = std::chrono::seconds(60);

  void SetUp() override {
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
    runtime_ = GetParam().open();
    ASSERT_NE(runtime_, nullptr);
  }

  at::Tensor on_device(at::IntArrayRef shape) const {
    return at::empty(shape, at::TensorOptions(at::kFloat).device(runtime_->device()));
  }
  // Pinned where the device has such memory.
  at::Tensor on_host(at::IntArrayRef shape) const {
    const auto bytes = static_cast<std::size_t>(c10::multiply_integers(shape)) * sizeof(float);
    const std::shared_ptr<void> memory = runtime_->pinned_memory(bytes);
    if (!memory) return at::empty(shape, at::kFloat);
    return at::from_blob(
        memory.get(), shape, [memory](void*) {}, at::kFloat);
  }
  void finish(Stream stream) const {
    const auto done = runtime_->host_wait(runtime_->record(stream), kTimeout);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }

  std::shared_ptr<DeviceRuntime> runtime_;
};

// Up in one stream, changed in another, down in a third, each behind an event of the one before.
TEST_P(DeviceConformance, WorkFollowsTheEventsThatItWaitsFor) {
  constexpr std::int64_t kSize = 1 << 20;
  at::Tensor up = on_host({kSize}), down = on_host({kSize});
  at::Tensor place = on_device({kSize});
  for (int round = 0; round < 20; ++round) {
    up.fill_(static_cast<float>(round));
    runtime_->wait(Stream::upload, runtime_->record(Stream::compute));
    runtime_->copy(Stream::upload, place, up);
    runtime_->wait(Stream::compute, runtime_->record(Stream::upload));
    at::Tensor result;
    {
      const auto scope = runtime_->enter(Stream::compute);
      result = place * 2 + 1;
    }
    runtime_->wait(Stream::download, runtime_->record(Stream::compute));
    runtime_->record_stream(result, Stream::download);
    runtime_->copy(Stream::download, down, result);
    result.reset();
    finish(Stream::download);
    ASSERT_TRUE(down.eq(2 * round + 1).all().item<bool>()) << "round " << round;
  }
}

TEST_P(DeviceConformance, AnEventStaysReachedAndCoversWhatWasBefore) {
  at::Tensor up = on_host({4096}), place = on_device({4096});
  up.fill_(3);
  EventHandle event;
  for (int i = 0; i < 10; ++i) {
    runtime_->copy(Stream::upload, place, up);
    event = runtime_->record(Stream::upload);
  }
  ASSERT_TRUE(runtime_->host_wait(event, kTimeout).ok());
  if (event) {
    EXPECT_TRUE(event->reached());
  }
  runtime_->copy(Stream::upload, place, up);
  if (event) {
    EXPECT_TRUE(event->reached()) << "what comes later is not its matter";
  }
  finish(Stream::upload);
}

// They need no wait of their own: what follows them in the stream is enough.
TEST_P(DeviceConformance, TimedEventsAreReachedInTheOrderOfTheirStream) {
  const EventHandle first = runtime_->record_timed(Stream::compute);
  if (!first) return;
  {
    const auto scope = runtime_->enter(Stream::compute);
    at::Tensor x = at::ones({1 << 20}, at::TensorOptions(at::kFloat).device(runtime_->device()));
    for (int i = 0; i < 50; ++i) x.mul_(0.5).add_(1);
  }
  const EventHandle last = runtime_->record_timed(Stream::compute);
  finish(Stream::compute);
  ASSERT_TRUE(first->reached() && last->reached());
  EXPECT_GE(last->seconds_since(*first), 0);
  EXPECT_LT(last->seconds_since(*first), to_seconds(kTimeout));
}

TEST_P(DeviceConformance, ScopesNestAndEndInReverse) {
  const auto outer = runtime_->enter(Stream::compute);
  at::Tensor x = at::ones({100}, at::TensorOptions(at::kFloat).device(runtime_->device()));
  {
    const auto inner = runtime_->enter(Stream::upload);
    runtime_->wait(Stream::upload, runtime_->record(Stream::compute));
  }
  x.add_(1);
  runtime_->wait(Stream::download, runtime_->record(Stream::compute));
  at::Tensor down = on_host({100});
  runtime_->copy(Stream::download, down, x);
  finish(Stream::download);
  EXPECT_TRUE(down.eq(2).all().item<bool>());
}

// The last handle of a gradient may end anywhere, and later than the worker.
TEST_P(DeviceConformance, PinnedMemoryEndsOnAnyThreadAndAfterTheRuntime) {
  std::shared_ptr<void> memory = runtime_->pinned_memory(1 << 20);
  if (!memory) {
    EXPECT_TRUE(runtime_->in_host_memory());
    return;
  }
  static_cast<unsigned char*>(memory.get())[(1 << 20) - 1] = 7;
  runtime_ = nullptr;
  std::thread other([last = std::move(memory)]() mutable { last.reset(); });
  other.join();
}

TEST_P(DeviceConformance, TransfersOfAnySizeArrive) {
  Transfers transfers(runtime_, std::size_t{256} << 20, kTimeout);
  Transfers::DeviceSlot slot;
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{1000}, std::int64_t{5} << 20, std::int64_t{30} << 20}) {
    SCOPED_TRACE(count);
    const at::Tensor host = at::arange(count, at::kFloat);
    const at::Tensor up = transfers.upload(host, slot);
    at::Tensor result;
    {
      const auto scope = transfers.begin_compute();
      result = up + 1;
      transfers.end_compute();
    }
    const at::Tensor down = transfers.download(result);
    ASSERT_TRUE(transfers.finish().ok());
    EXPECT_TRUE(down.cpu().equal(host + 1));
  }
}

// A capture executes nothing; each replay reads what its operands have by then.
TEST_P(DeviceConformance, AGraphReplaysItsOperationsOnTheSameMemory) {
  if (const std::string why = runtime_->why_no_graphs(); !why.empty()) {
    EXPECT_THROW(runtime_->capture([] {}), std::logic_error);
    return;
  }
  constexpr std::int64_t kSize = 1 << 16;
  at::Tensor up = on_host({kSize}), down = on_host({kSize});
  at::Tensor x = on_device({kSize}), y = on_device({kSize});
  const auto work = [&] { y.copy_((x * 2 + 1).sqrt().square()); };
  std::unique_ptr<DeviceGraph> graph;
  {
    const auto scope = runtime_->enter(Stream::compute);
    x.fill_(7);
    work();
    y.fill_(-1);
    graph = runtime_->capture(work);
  }
  const auto result = [&] {
    runtime_->wait(Stream::download, runtime_->record(Stream::compute));
    runtime_->copy(Stream::download, down, y);
    finish(Stream::download);
    return down.clone();
  };
  EXPECT_TRUE(result().eq(-1).all().item<bool>()) << "captured, not executed";
  for (int round = 0; round < 10; ++round) {
    up.fill_(static_cast<float>(round));
    runtime_->wait(Stream::upload, runtime_->record(Stream::compute));
    runtime_->copy(Stream::upload, x, up);
    runtime_->wait(Stream::compute, runtime_->record(Stream::upload));
    graph->replay(Stream::compute);
    EXPECT_TRUE(at::allclose(result(), at::full({kSize}, 2.0F * round + 1))) << "round " << round;
  }
}

// With graphs a worker computes what it does without, in each step.
TEST_P(DeviceConformance, AWorkerWithGraphsComputesWhatTheCpuDoes) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  const auto cpu = make_tiny(config);
  config.runtime = runtime_;
  config.graphs = true;
  const auto device = make_tiny(config);
  FrozenTensor buffers, z = cpu->initial_parameters();
  for (Step step = 0; step < 10; ++step) {
    SCOPED_TRACE(step);
    GradientRequest request = tiny_request(z, step);
    request.buffers = buffers;
    const Gradient expected = cpu->gradient(request), found = device->gradient(request);
    ASSERT_EQ(expected.error + found.error, "");
    EXPECT_TRUE(at::allclose(found.value.read(), expected.value.read(), 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(found.buffers.read(), expected.buffers.read(), 1e-4, 1e-5));
    EXPECT_NEAR(found.loss, expected.loss, 1e-4);
    z = FrozenTensor::freeze(z.read() - 0.2 * expected.value.read());
    buffers = expected.buffers;
  }
}

// Gradients, buffers and losses are those of the CPU but for rounding, whatever is recycled.
TEST_P(DeviceConformance, AWorkerComputesWhatTheCpuDoes) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  const auto cpu = make_tiny(config);
  config.runtime = runtime_;
  const auto device = make_tiny(config);
  FrozenTensor recycled, buffers;
  for (Step step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    at::manual_seed(static_cast<std::uint64_t>(step));
    const FrozenTensor z = FrozenTensor::freeze(at::randn({cpu->dimension()}));
    GradientRequest request = tiny_request(z, step % 5);
    request.buffers = buffers;
    const Gradient expected = cpu->gradient(request);
    request.recycled = std::move(recycled);
    Gradient found = device->gradient(std::move(request));
    ASSERT_EQ(expected.error + found.error, "");
    ASSERT_TRUE(found.value.read().device().is_cpu());
    EXPECT_TRUE(at::allclose(found.value.read(), expected.value.read(), 1e-4, 1e-5));
    EXPECT_TRUE(at::allclose(found.buffers.read(), expected.buffers.read(), 1e-4, 1e-5));
    EXPECT_NEAR(found.loss, expected.loss, 1e-4);
    EXPECT_NEAR(found.top1, expected.top1, 1e-9);
    buffers = expected.buffers;
    if (step % 2 == 0) recycled = std::move(found.value);
  }
  const FrozenTensor z = cpu->initial_parameters();
  const auto expected = cpu->evaluate(z, buffers), found = device->evaluate(z, buffers);
  ASSERT_TRUE(expected.ok() && found.ok());
  EXPECT_NEAR(found->loss, expected->loss, 1e-4);
}

}  // namespace grapevine
