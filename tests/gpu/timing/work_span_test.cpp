// How long a device works, by the times of the fake device's streams.
#include "gpu/timing/work_span.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace work_span_test {

constexpr double kRounding = 1e-6;  // times are sums of seconds, of all tests of the process

// A stream whose work is copies of a second each.
class TimedWorker {
 public:
  TimedWorker(int device, Stream stream)
      : runtime_(fake::open_device(device, "a worker")),
        stream_(stream),
        memory_(runtime_->pinned_memory(sizeof(float))),
        to_(at::empty({1}, at::TensorOptions(at::kFloat).device(fake::device(device)))) {}

  DeviceRuntime& runtime() const { return *runtime_; }
  void work(int seconds) const {
    const at::Tensor from = at::from_blob(memory_.get(), {1}, at::kFloat);
    for (int i = 0; i < seconds; ++i) runtime_->copy(stream_, to_, from);
  }
  void span_of(int seconds) const {
    const WorkSpan span(*runtime_, stream_);
    work(seconds);
  }
  EventHandle record() const { return runtime_->record(stream_); }
  void wait(const EventHandle& event) const { runtime_->wait(stream_, event); }
  void finish() const { ASSERT_TRUE(runtime_->host_wait(record(), std::chrono::seconds(1))); }

 private:
  const std::shared_ptr<DeviceRuntime> runtime_;
  const Stream stream_;
  const std::shared_ptr<void> memory_;
  const at::Tensor to_;
};

class WorkSpans : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_duration("upload", 1);
  }
  void TearDown() override { fake::reset(); }

  // Seconds since the last call.
  double worked(int device = 0) {
    double& before = before_[static_cast<std::size_t>(device)];
    const double now = worked_seconds(fake::device(device)).value_or(0);
    return now - std::exchange(before, now);
  }

 private:
  std::array<double, fake::kDevices> before_ = {worked_seconds(fake::device(0)).value_or(0),
                                                worked_seconds(fake::device(1)).value_or(0)};
};

TEST_F(WorkSpans, CountOnceTheDeviceHasDoneTheWork) {
  const TimedWorker worker(0, Stream::compute);
  worker.span_of(3);
  const double before = fake::host_time();
  EXPECT_EQ(worked(), 0) << "it is not done yet";
  EXPECT_EQ(fake::host_time(), before) << "nobody waited for it";
  worker.finish();
  EXPECT_NEAR(worked(), 3, kRounding);
  worker.work(2);  // in no span
  worker.finish();
  EXPECT_EQ(worked(), 0);
  fake::host_works(10);
  worker.span_of(4);
  worker.finish();
  EXPECT_NEAR(worked(), 4, kRounding) << "without the pause";
}

TEST_F(WorkSpans, ThatOverlapCountOnce) {
  const TimedWorker worker(0, Stream::compute), peer(0, Stream::exchange);
  const TimedWorker elsewhere(1, Stream::compute);
  worker.span_of(5);
  peer.span_of(3);
  elsewhere.span_of(2);
  worker.finish();
  peer.finish();
  elsewhere.finish();
  EXPECT_NEAR(worked(), 5, kRounding);
  EXPECT_NEAR(worked(1), 2, kRounding);
  worker.span_of(4);
  peer.wait(worker.record());
  peer.span_of(3);  // behind it
  peer.finish();
  EXPECT_NEAR(worked(), 7, kRounding);
}

// A span that began before others and ends after them.
TEST_F(WorkSpans, ThatAreOpenForLongLoseNothing) {
  const TimedWorker worker(0, Stream::compute), peer(0, Stream::exchange);
  {
    const WorkSpan span(worker.runtime(), Stream::compute);
    worker.work(10);
    for (int i = 0; i < 4; ++i) {
      peer.span_of(1);
      peer.finish();
      EXPECT_NEAR(worked(), 1, kRounding);
    }
  }
  worker.finish();
  EXPECT_NEAR(worked(), 10 - 4, kRounding);
}

// The times of random spans of four streams, against a row of seconds.
TEST_F(WorkSpans, CountTheUnionOfRandomWork) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    const auto draw = [&rng](int from, int to) {
      return std::uniform_int_distribution<int>(from, to)(rng);
    };
    std::vector<std::unique_ptr<TimedWorker>> streams;
    for (const Stream stream : {Stream::compute, Stream::exchange, Stream::compute})
      streams.push_back(std::make_unique<TimedWorker>(0, stream));
    std::vector<int> free_at(streams.size(), 0);
    const double zero = fake::host_time();
    std::vector<bool> busy(2000, false);
    worked();
    double sum = 0;
    for (int i = 0; i < 40; ++i) {
      const auto host = static_cast<int>(std::lround(fake::host_time() - zero));
      const auto one = static_cast<std::size_t>(draw(0, 2));
      const int length = draw(0, 6), begin = std::max(free_at[one], host);
      switch (draw(0, 3)) {
        case 0:
          fake::host_works(draw(0, 5));
          break;
        case 1:
          streams[one]->finish();
          sum += worked();
          break;
        default:
          streams[one]->span_of(length);
          free_at[one] = begin + length;
          std::fill(busy.begin() + begin, busy.begin() + free_at[one], true);
      }
    }
    for (const auto& stream : streams) stream->finish();
    sum += worked();
    ASSERT_NEAR(sum, static_cast<double>(std::count(busy.begin(), busy.end(), true)), kRounding);
  }
}

TEST_F(WorkSpans, AreNothingWhereTheDeviceGivesNoTimes) {
  const auto host = host_runtime();
  LazyDevice lazy;
  {
    WorkSpan on_host(*host, Stream::compute), on_lazy(lazy, Stream::compute);
    on_host.end();
  }
  EXPECT_FALSE(worked_seconds(at::kCPU));
  EXPECT_TRUE(lazy.log.empty());
}

// Each step works for a known time, between pauses of the host; the exchange of a peer overlaps it.
TEST_F(WorkSpans, OfAStepAreInItsGradient) {
  TorchComputeConfig config = tiny_config(plain_layers);
  config.runtime = fake::open_device(0, "worker");
  const auto compute = make_tiny(std::move(config));
  const FrozenTensor z = compute->initial_parameters();
  fake::set_duration("upload", 0);
  EXPECT_TRUE(std::isnan(compute->gradient(tiny_request(z, 0)).device_seconds));
  constexpr double kEach = 0.25, kPause = 3;
  fake::set_duration("aten::tanh.out", kEach);
  for (Step step = 1; step < 6; ++step) {
    SCOPED_TRACE(step);
    const double began = fake::host_time();
    const std::uint64_t before = fake::calls("aten::tanh.out");
    fake::host_works(kPause);
    const Gradient gradient = compute->gradient(tiny_request(z, step));
    ASSERT_EQ(gradient.error, "");
    const double length = kEach * static_cast<double>(fake::calls("aten::tanh.out") - before);
    ASSERT_GT(length, 0);
    EXPECT_NEAR(gradient.device_seconds, length, kRounding);
    const double share = gradient.device_seconds / (fake::host_time() - began);
    EXPECT_NEAR(share, length / (length + kPause), kRounding);
  }

  fake::set_duration("upload", 1);
  const TimedWorker peer(0, Stream::exchange);
  peer.span_of(20);
  fake::set_duration("upload", 0);
  const Gradient overlapped = compute->gradient(tiny_request(z, 6));
  EXPECT_GT(overlapped.device_seconds, 0);
  EXPECT_LT(overlapped.device_seconds, 20) << "the exchange continues";
  peer.finish();
  const Gradient next = compute->gradient(tiny_request(z, 7));
  EXPECT_NEAR(overlapped.device_seconds + next.device_seconds, 20 + overlapped.device_seconds,
              kRounding);
}

TEST_F(WorkSpans, OfTheCpuAreUnknown) {
  const auto compute = make_tiny(tiny_config(plain_layers));
  for (Step step = 0; step < 2; ++step) {
    const Gradient gradient = compute->gradient(tiny_request(compute->initial_parameters(), step));
    EXPECT_TRUE(std::isnan(gradient.device_seconds));
  }
}

}  // namespace work_span_test
}  // namespace grapevine
