// The frames between a lead and its members: every field arrives, and nothing malformed does.
#include "apps/train/replicas/replica_frames.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace grapevine {
namespace replica_frames_test {

template <class T>
shm::Packet packet_of(const T& frame) {
  shm::Packet packet;
  packet.bytes.resize(sizeof frame);
  std::memcpy(packet.bytes.data(), &frame, sizeof frame);
  return packet;
}

FrozenTensor vector_of(std::int64_t count) { return FrozenTensor::freeze(at::ones({count})); }

// Each field has a value of its own, so that one that is left out or swapped shows. The bindings
// here name all fields: a new one does not compile before it has a line.
TEST(ReplicaFrames, ATaskHasEveryFieldOfARequest) {
  GradientRequest sent;
  sent.step = 11;
  sent.z = vector_of(3);
  sent.buffers = vector_of(2);
  sent.deal = {5, 3, 77, 9};
  const auto task = read_task(packet_of(task_of(sent)));
  ASSERT_TRUE(task && *task) << (task ? "goodbye" : task.error().message);
  EXPECT_EQ((*task)->has_buffers, 1U);
  const GradientRequest got = request_of(**task);
  const auto& [step, z, buffers, recycled, deal, parts] = got;
  EXPECT_EQ(step, 11);
  EXPECT_FALSE(z.defined() || buffers.defined() || recycled.defined());  // in the shared memory
  const auto& [ranks, position, first_batch, first_step] = deal;
  EXPECT_EQ(ranks, 5);
  EXPECT_EQ(position, 3);
  EXPECT_EQ(first_batch, 77);
  EXPECT_EQ(first_step, 9);
  EXPECT_EQ(parts, nullptr);  // documented: a remote replica hands over none
  EXPECT_EQ((*task)->by_group, 0U) << "z is in the host's memory";
  sent.buffers = {};
  EXPECT_EQ(task_of(sent).has_buffers, 0U);
}

TEST(ReplicaFrames, AResultHasEveryFieldOfAGradient) {
  Gradient sent;
  sent.step = 4;
  sent.buffers = vector_of(1);
  sent.loss = 0.1;
  sent.top1 = std::numeric_limits<double>::quiet_NaN();
  sent.top5 = 0.3;
  sent.samples = 6;
  sent.length = 7;
  sent.data_seconds = 0.5;
  sent.compute_seconds = 0.25;
  sent.device_seconds = 0.125;
  const auto result = read_result(packet_of(result_of(sent)), 4);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->has_buffers, 1U);
  const Gradient got = gradient_of(*result);
  const auto& [step, value, buffers, loss, top1, top5, samples, length, data_seconds,
               compute_seconds, device_seconds, error] = got;
  EXPECT_EQ(step, 4);
  EXPECT_FALSE(value.defined() || buffers.defined());
  EXPECT_EQ(loss, 0.1);
  EXPECT_TRUE(std::isnan(top1));
  EXPECT_EQ(top5, 0.3);
  EXPECT_EQ(samples, 6);
  EXPECT_EQ(length, 7);
  EXPECT_EQ(data_seconds, 0.5);
  EXPECT_EQ(compute_seconds, 0.25);
  EXPECT_EQ(device_seconds, 0.125);
  EXPECT_EQ(error, "");
}

TEST(ReplicaFrames, LongErrorsAreCutBetweenCharacters) {
  Gradient sent;
  for (std::size_t begin = 0; begin < 3; ++begin) {
    sent.error = std::string(begin, 'a');
    while (sent.error.size() < 2 * kReplicaErrorBytes) sent.error += "\u20ac";  // of three bytes
    const std::string got = gradient_of(result_of(sent)).error;
    EXPECT_LE(got.size(), kReplicaErrorBytes);
    EXPECT_GT(got.size(), kReplicaErrorBytes - 3);
    EXPECT_EQ((got.size() - begin) % 3, 0U);
    EXPECT_EQ(got, sent.error.substr(0, got.size()));
  }
  sent.error = std::string(kReplicaErrorBytes, 'b');
  EXPECT_EQ(gradient_of(result_of(sent)).error, sent.error);
}

TEST(ReplicaFrames, AGoodbyeIsNoTask) {
  const auto read = read_task(packet_of(ReplicaGoodbye{}));
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->has_value());
}

TEST(ReplicaFrames, MalformedOnesAreRefused) {
  const auto refused = [](auto frame, const char* what) {
    EXPECT_FALSE(read_result(packet_of(frame), 0)) << what;
  };
  ReplicaResult result;
  ASSERT_TRUE(read_result(packet_of(result), 0));
  result.error_bytes = kReplicaErrorBytes + 1;
  refused(result, "an error beyond the frame");
  result = {};
  result.samples = -1;
  refused(result, "samples");
  result = {};
  result.length = -1;
  refused(result, "length");
  result = {};
  result.has_buffers = 2;
  refused(result, "buffers");
  result = {};
  result.step = 1;
  refused(result, "another step");
  refused(ReplicaTask{}, "a task");
  ReplicaTask task;
  task.step = -1;
  EXPECT_FALSE(read_task(packet_of(task)));
  task = {};
  task.has_buffers = 7;
  EXPECT_FALSE(read_task(packet_of(task)));
  task = {};
  task.by_group = 2;
  EXPECT_FALSE(read_task(packet_of(task)));
  task = {};
  task.deal.ranks = -1;
  EXPECT_FALSE(read_task(packet_of(task)));
  EXPECT_FALSE(read_task(packet_of(ReplicaResult{})));
}

TEST(ReplicaFrames, AGroupHasItsId) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, kGroupIdBytes}) {
    std::vector<std::uint8_t> id(bytes);
    for (std::size_t i = 0; i < bytes; ++i) id[i] = static_cast<std::uint8_t>(i + 1);
    shm::Packet with = packet_of(group_of(id)), without = packet_of(group_of(id));
    with.descriptors.emplace_back(::dup(0));  // of memory for gradients
    const bool on_host = bytes == 0;
    const auto read = read_group(on_host ? with : without);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, id);
    EXPECT_FALSE(read_group(on_host ? without : with));
  }
  const auto goodbye = read_group(packet_of(ReplicaGoodbye{}));
  ASSERT_TRUE(goodbye);
  EXPECT_FALSE(goodbye->has_value());
  ReplicaGroup longer;
  longer.id_bytes = kGroupIdBytes + 1;
  EXPECT_FALSE(read_group(packet_of(longer)));
  EXPECT_FALSE(read_group(packet_of(ReplicaTask{})));
  EXPECT_FALSE(read_task(packet_of(ReplicaGroup{})));
}

// Any bytes of any length: refused, or read into numbers within their ranges.
TEST(ReplicaFrames, RandomBytesDoNoHarm) {
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 20000; ++i) {
    shm::Packet packet;
    const std::vector<std::size_t> lengths = {sizeof(ReplicaTask), sizeof(ReplicaGoodbye),
                                              sizeof(ReplicaResult), sizeof(ReplicaGroup),
                                              random() % 512};
    packet.bytes.resize(lengths[random() % lengths.size()]);
    for (auto& byte : packet.bytes) byte = static_cast<std::byte>(random() % 4);
    for (auto& byte : packet.bytes)
      if (random() % 4 == 0) byte = static_cast<std::byte>(random());
    if (packet.bytes.size() > 4) {
      const auto kind = static_cast<std::uint32_t>(random() % 6);
      std::memcpy(packet.bytes.data(), &kind, sizeof kind);
    }
    if (const auto id = read_group(packet); id && *id) {
      EXPECT_LE((*id)->size(), kGroupIdBytes) << "seed " << kSeed << ", packet " << i;
    }
    if (const auto task = read_task(packet); task && *task) {
      EXPECT_GE((*task)->step, 0) << "seed " << kSeed << ", packet " << i;
    }
    if (const auto result = read_result(packet, 0)) {
      EXPECT_LE(gradient_of(*result).error.size(), kReplicaErrorBytes)
          << "seed " << kSeed << ", packet " << i;
    }
  }
}

}  // namespace replica_frames_test
}  // namespace grapevine
