// A worker with several devices whose model is on the first of them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpu/replicas/device_mean.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/resident/replica_cases.hpp"
#include "tests/gpu/resident/replicas_on_devices.hpp"

namespace grapevine {
namespace resident_replicas_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

struct Worker {
  std::vector<int> devices;
  bool grouped;
};

const std::vector<Worker> kWorkers = {
    {{0, 1}, true}, {{1, 0}, true}, {{0, 1}, false}, {{0, 1, 0, 1}, false}, {{1, 1}, false}};

class ResidentReplicas : public ReplicasTest {
 protected:
  static std::unique_ptr<Compute> worker(const Worker& worker, const ReplicaCase& of) {
    return replicas_on_devices(worker.devices, worker.grouped, of.config(), "worker");
  }
  // What a peer does with a gradient, and what it gives back.
  FrozenTensor used(FrozenTensor gradient, int device) {
    const auto scope = peer(device)->enter(Stream::exchange);
    at::Tensor g = std::move(gradient).thaw();
    g.mul_(0.5);
    return FrozenTensor::freeze(std::move(g));
  }
  // A thread that waits for the device may hide the wait that another one has left out: of the
  // first of several runs with violations.
  std::vector<std::string> violations_with(fake::Fault fault, bool grouped) {
    for (int run = 0; run < 20; ++run)
      if (auto found = violations_of_run(fault, grouped); !found.empty()) return found;
    return {};
  }
  // Of a step with a fault, after one without, and of what the peer does with the gradient.
  std::vector<std::string> violations_of_run(fake::Fault fault, bool grouped) {
    fake::reset();
    const auto compute = worker({{0, 1}, grouped}, kReplicaCases[0]);
    const at::Tensor z = compute->initial_parameters().read();
    GradientRequest request = tiny_request(resident(z, 0), 0);
    for (Step step = 0; step < 3; ++step) {
      Gradient made = compute->gradient(std::move(request));
      EXPECT_EQ(made.error, "");
      used(std::move(made.value), 0);
      if (step == 0) {
        EXPECT_THAT(fake::violations(), IsEmpty());
        fake::set_fault(fault);
      }
      request = tiny_request(resident(z, 0), step + 1);
      request.buffers = std::move(made.buffers);
    }
    return fake::violations();
  }
};

TEST_F(ResidentReplicas, HaveTheBitsOfModelsInTheHostsMemory) {
  for (const Worker& each : kWorkers)
    for (const ReplicaCase& of : kReplicaCases) {
      const bool every_case = each.devices == std::vector<int>{0, 1};
      if (!every_case && &of != &kReplicaCases.front()) continue;
      SCOPED_TRACE(testing::Message() << of.name << ", " << each.devices.size() << " devices from "
                                      << each.devices[0] << ", grouped " << each.grouped);
      const int lead = each.devices[0];
      const auto host = worker(each, of);
      const auto here = worker(each, of);
      GradientRequest mine, other;
      for (Step step = 0; step < 3; ++step) {
        const FrozenTensor z = point(*host, step);
        mine.step = other.step = step;
        mine.z = z;
        other.z = resident(z.read(), lead);
        Gradient expected = host->gradient(std::move(mine));
        Gradient found = here->gradient(std::move(other));
        ASSERT_EQ(expected.error + found.error, "");
        ASSERT_EQ(found.value.device(), fake::device(lead));
        EXPECT_TRUE(fake::peek(found.value.read()).equal(expected.value.read())) << step;
        EXPECT_EQ(found.loss, expected.loss);
        EXPECT_EQ(found.top1, expected.top1);
        EXPECT_EQ(found.samples, expected.samples);
        ASSERT_EQ(found.buffers.defined(), expected.buffers.defined());
        mine = other = {};
        if (found.buffers.defined()) {
          ASSERT_EQ(found.buffers.device(), fake::device(lead));
          EXPECT_TRUE(fake::peek(found.buffers.read()).equal(expected.buffers.read())) << step;
        }
        mine.buffers = std::move(expected.buffers);
        other.buffers = std::move(found.buffers);
        mine.recycled = std::move(expected.value);
        other.recycled = used(std::move(found.value), lead);
      }
      EXPECT_THAT(fake::violations(), IsEmpty());
      fake::reset();
    }
}

// Bytes of a step, once both devices have all they keep.
TEST_F(ResidentReplicas, MoveVectorsFromDeviceToDeviceOnly) {
  for (const bool grouped : {false, true}) {
    SCOPED_TRACE(grouped);
    const auto compute = worker({{0, 1}, grouped}, kReplicaCases[1]);
    const FrozenTensor host = compute->initial_parameters();
    const auto traffic_of = [&](const FrozenTensor& z, Step step) {
      fake::reset();
      EXPECT_EQ(compute->gradient(tiny_request(z, step)).error, "");
      return fake::traffic();
    };
    const FrozenTensor z = resident(host.read(), 0);
    const std::uint64_t d = z.nbytes();
    static_cast<void>(traffic_of(z, 0));
    const fake::Traffic here = traffic_of(z, 1);
    EXPECT_EQ(here.across, grouped ? d : 2 * d) << "z, and the gradient where no group sums it";
    EXPECT_LT(here.down, d) << "figures only";
    const fake::Traffic staged = traffic_of(host, 2);
    EXPECT_EQ(staged.down - here.down, grouped ? d : 2 * d);
    EXPECT_EQ(staged.across, 0u);
  }
}

// A model that a worker holds on one device is validated on another.
TEST_F(ResidentReplicas, EvaluateModelsOfOtherDevices) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.runtime = fake::open_device(1, "evaluator");
  const auto compute = make_tiny(std::move(config));
  const FrozenTensor z = point(*compute, 1);
  const FrozenTensor buffers = compute->initial_buffers();
  const double expected = compute->evaluate(z, buffers)->loss;
  fake::reset();
  EXPECT_EQ(compute->evaluate(resident(z.read(), 0), resident(buffers.read(), 0))->loss, expected);
  EXPECT_EQ(fake::traffic().across, z.nbytes() + buffers.nbytes());
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// ---- waits that are left out

TEST_F(ResidentReplicas, AMissingWaitForTheModelIsFound) {
  for (const bool grouped : {false, true})
    EXPECT_THAT(violations_with(fake::Fault::foreign_is_not_awaited, grouped),
                Contains(AllOf(HasSubstr("'copy between devices' in device 1, worker, replica 1's "
                                         "upload reads what was written by"),
                               HasSubstr("peer's exchange"))));
}

TEST_F(ResidentReplicas, AMissingWaitForTheCopyOfTheModelIsFound) {
  for (const bool grouped : {false, true})
    EXPECT_THAT(violations_with(fake::Fault::upload_is_not_awaited, grouped),
                Contains(AllOf(HasSubstr("worker, replica 1's compute reads what was written by "
                                         "'copy between devices'"),
                               HasSubstr("replica 1's upload"))));
}

// The peer reads what the lead's stream has summed, for which no host has waited.
TEST_F(ResidentReplicas, AMissingWaitForTheSumIsFound) {
  EXPECT_THAT(violations_with(fake::Fault::ready_events_are_empty, false),
              Contains(AllOf(HasSubstr("peer's exchange"), HasSubstr("in device 0, worker, "
                                                                     "replica 0's compute"))));
}

// A gradient ends while the lead's stream copies it.
TEST_F(ResidentReplicas, MemoryThatIsReusedUnderACopyIsFound) {
  EXPECT_THAT(violations_with(fake::Fault::allocator_is_not_told, false),
              Contains(AllOf(HasSubstr("'the next owner of the memory' in device 1, worker, "
                                       "replica 1's compute"),
                             HasSubstr("'copy between devices' in device 0"))));
}

TEST_F(ResidentReplicas, AMissingWaitForTheReductionIsFound) {
  for (const fake::Fault fault :
       {fake::Fault::exchange_does_not_wait, fake::Fault::exchange_is_not_awaited})
    EXPECT_THAT(violations_with(fault, true), Contains(HasSubstr("worker, replica 0's exchange")));
}

// Of a vector that no host has waited for, as it has in a step of a worker.
TEST_F(ResidentReplicas, AMissingWaitOfTheMeanIsFound) {
  const auto mean_of = [this] {
    std::vector<FrozenTensor> values;
    for (const int device : {0, 1})
      values.push_back(resident(at::full({5000}, 1.0F + static_cast<float>(device)), device));
    const auto lead = fake::open_device(0, "lead");
    return mean_on_device(*lead, std::move(values));
  };
  EXPECT_TRUE(fake::peek(mean_of().read()).equal(at::full({5000}, 1.5F)));
  EXPECT_THAT(fake::violations(), IsEmpty());
  fake::set_fault(fake::Fault::foreign_is_not_awaited);
  static_cast<void>(mean_of());
  EXPECT_THAT(fake::violations(),
              Contains(AllOf(HasSubstr("'copy between devices' in device 0, lead's compute"),
                             HasSubstr("in device 1, peer's exchange"))));
}

}  // namespace resident_replicas_test
}  // namespace grapevine
