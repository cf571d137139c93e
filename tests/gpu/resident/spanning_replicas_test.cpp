// A worker whose replicas are in processes of their own, each with a device, and whose model is on
// the first of them: a group takes z to the others, and brings the means.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/resident/replica_cases.hpp"
#include "tests/gpu/resident/replicas_on_devices.hpp"

namespace grapevine {
namespace spanning_replicas_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kReplicas = 2;

// A replica of another process: of a request whose vectors are on a device it gets all but these.
class OtherProcess final : public Compute {
 public:
  explicit OtherProcess(std::unique_ptr<Compute> inner) : inner_(std::move(inner)) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    if (!request.z.device().is_cpu()) request.z = request.buffers = {};
    request.recycled = {};
    Gradient made = inner_->gradient(std::move(request));
    EXPECT_FALSE(made.value.defined()) << "the mean is the lead's";
    return made;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  const std::unique_ptr<Compute> inner_;
};

class SpanningReplicas : public ReplicasTest {
 protected:
  static std::unique_ptr<Compute> spanning(const ReplicaCase& of) {
    const std::string id = fake::make_group_id();
    std::vector<std::future<std::shared_ptr<GradientGroup>>> groups;
    for (std::size_t i = 0; i < kReplicas; ++i)
      groups.push_back(std::async(std::launch::async, [&id, i] {
        return fake::join_group(id, i, 1, kReplicas, kReplicasTimeout, nullptr).value();
      }));
    std::vector<std::unique_ptr<Compute>> all;
    std::shared_ptr<GradientGroup> of_lead;
    for (std::size_t i = 0; i < kReplicas; ++i) {
      TorchComputeConfig own = of.config();
      own.name = "worker, replica " + std::to_string(i);
      own.replica = i;
      own.replicas = kReplicas;
      own.group = groups[i].get();
      own.spans_processes = true;
      own.bucket_bytes = 64;
      own.runtime = fake::open_device(static_cast<int>(i), own.name);
      if (i == 0) of_lead = own.group;
      auto made = make_tiny(std::move(own));
      all.push_back(i == 0 ? std::move(made) : std::make_unique<OtherProcess>(std::move(made)));
    }
    return std::make_unique<ReplicatedCompute>(std::move(all), of_lead, kReplicasTimeout);
  }
};

// Of replicas in one process, whose model is in the host's memory; z is there in some steps.
TEST_F(SpanningReplicas, HaveTheBitsOfModelsInTheHostsMemory) {
  std::mt19937_64 random(31);
  for (const ReplicaCase& of : kReplicaCases) {
    SCOPED_TRACE(of.name);
    const auto host = replicas_on_devices({0, 1}, true, of.config(), "host");
    const auto here = spanning(of);
    FrozenTensor buffers;
    for (Step step = 0; step < 5; ++step) {
      const bool on_device = step < 2 || random() % 2 == 0;
      SCOPED_TRACE(testing::Message() << "step " << step << ", on the device " << on_device);
      const FrozenTensor z = point(*host, step);
      GradientRequest mine = tiny_request(z, step), other = mine;
      mine.buffers = other.buffers = buffers;
      if (on_device) {
        other.z = resident(z.read(), 0);
        if (buffers.defined()) other.buffers = resident(buffers.read(), 0);
      }
      Gradient expected = host->gradient(std::move(mine));
      Gradient found = here->gradient(std::move(other));
      ASSERT_EQ(expected.error + found.error, "");
      EXPECT_EQ(found.value.device().is_cpu(), !on_device);
      EXPECT_TRUE(fake::peek(found.value.read()).equal(expected.value.read()));
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.top1, expected.top1);
      EXPECT_EQ(found.samples, expected.samples);
      ASSERT_EQ(found.buffers.defined(), expected.buffers.defined());
      if (found.buffers.defined()) {
        EXPECT_EQ(found.buffers.device().is_cpu(), !on_device);
        EXPECT_TRUE(fake::peek(found.buffers.read()).equal(expected.buffers.read()));
      }
      buffers = std::move(expected.buffers);
    }
    EXPECT_THAT(fake::violations(), IsEmpty());
    fake::reset();
  }
}

// Bytes of a step, once both devices have all that they keep. With the model in the host's memory
// slices of z go up, and the lead's mean comes down.
TEST_F(SpanningReplicas, NoModelCrossesTheHostsLink) {
  for (const ReplicaCase& of : {kReplicaCases[0], kReplicaCases[1]}) {
    SCOPED_TRACE(of.name);
    const auto compute = spanning(of);
    const FrozenTensor host = compute->initial_parameters();
    const FrozenTensor host_buffers = compute->initial_buffers();
    const auto traffic_of = [&](const FrozenTensor& z, const FrozenTensor& buffers, Step step) {
      fake::reset();
      GradientRequest request = tiny_request(z, step);
      request.buffers = buffers;
      EXPECT_EQ(compute->gradient(std::move(request)).error, "");
      return fake::traffic();
    };
    const FrozenTensor z = resident(host.read(), 0);
    const FrozenTensor buffers =
        host_buffers.defined() ? resident(host_buffers.read(), 0) : FrozenTensor();
    const std::uint64_t d = z.nbytes(), b = host_buffers.nbytes();
    static_cast<void>(traffic_of(z, buffers, 0));
    const fake::Traffic here = traffic_of(z, buffers, 1);
    EXPECT_EQ(here.across, 0U) << "the group's collectives are no copies";
    const fake::Traffic staged = traffic_of(host, host_buffers, 2);
    EXPECT_EQ(staged.up - here.up, d + kReplicas * b);
    EXPECT_EQ(staged.down - here.down, d + kReplicas * b);
    EXPECT_EQ(here.down, kReplicas * 4 * sizeof(double)) << "figures";
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

TEST_F(SpanningReplicas, AMissingWaitForTheModelIsFound) {
  const auto compute = spanning(kReplicaCases[1]);
  const at::Tensor z = compute->initial_parameters().read();
  for (Step step = 0; step < 3; ++step) {
    EXPECT_EQ(compute->gradient(tiny_request(resident(z, 0), step)).error, "");
    if (step > 0) continue;
    EXPECT_THAT(fake::violations(), IsEmpty());
    fake::set_fault(fake::Fault::ready_events_are_empty);
  }
  EXPECT_THAT(fake::violations(),
              Contains(AllOf(HasSubstr("'broadcast' in device 0, worker, replica 0's compute reads "
                                       "what was written by"),
                             HasSubstr("peer's exchange"))));
}

}  // namespace spanning_replicas_test
}  // namespace grapevine
