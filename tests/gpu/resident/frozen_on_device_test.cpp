// Frozen tensors on a device: streams wait for each other through them.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "algorithms/parts/buffer_pool.hpp"
#include "messages/frozen_tensor.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"

namespace grapevine {
namespace frozen_on_device_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class FrozenOnDevice : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  // Written by the owner's stream.
  FrozenTensor share(int device = 0) {
    const auto& owner = device == 0 ? owner_ : foreign_;
    const auto scope = owner->enter(Stream::exchange);
    at::Tensor t = at::ones({8}, at::TensorOptions(at::kFloat).device(fake::device(device)));
    t.mul_(3);
    return FrozenTensor::freeze(std::move(t));
  }

  const std::shared_ptr<DeviceRuntime> owner_ = fake::open_device(0, "owner");
  const std::shared_ptr<DeviceRuntime> reader_ = fake::open_device(0, "reader");
  const std::shared_ptr<DeviceRuntime> foreign_ = fake::open_device(1, "foreign");
};

TEST_F(FrozenOnDevice, ReadersWaitForTheWriter) {
  FrozenTensor t = share();
  {
    const auto scope = reader_->enter(Stream::compute);
    static_cast<void>(t.read().add(1));
    t = {};
  }
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FrozenOnDevice, MissingReadyEventIsFound) {
  fake::set_fault(fake::Fault::ready_events_are_empty);
  const FrozenTensor t = share();
  const auto scope = reader_->enter(Stream::compute);
  static_cast<void>(t.read().add(1));
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("reads what was written by 'aten::mul")));
}

// The last handle is thawed while another stream still reads.
TEST_F(FrozenOnDevice, TheNextWriterWaitsForReaders) {
  for (const bool faulty : {false, true}) {
    fake::reset();
    FrozenTensor t = share();
    {
      const auto scope = reader_->enter(Stream::compute);
      const FrozenTensor copy = t;
      static_cast<void>(copy.read().add(1));
    }
    if (faulty) fake::set_fault(fake::Fault::ready_events_are_empty);
    const auto scope = owner_->enter(Stream::exchange);
    ASSERT_TRUE(t.sole_owner());
    std::move(t).thaw().mul_(2);
    if (faulty) {
      EXPECT_THAT(fake::violations(), Contains(HasSubstr("overwrites what is read by 'aten::add")));
    } else {
      EXPECT_THAT(fake::violations(), IsEmpty());
    }
  }
}

// A writer in place would wait for all work of the reader's stream.
TEST_F(FrozenOnDevice, UpdatesWriteToOtherMemoryAfterAnotherStreamsRead) {
  const auto twice = [](at::Tensor& out, const at::Tensor& x) { out.copy_(x).mul_(2); };
  BufferPool pool;
  FrozenTensor t = share();
  {
    const auto scope = reader_->enter(Stream::compute);
    static_cast<void>(t.read().add(1));
  }
  const auto scope = owner_->enter(Stream::exchange);
  EXPECT_TRUE(t.sole_owner());
  EXPECT_FALSE(t.thaws_at_once());
  const void* const read_elsewhere = t.raw();
  update_frozen(t, pool, twice);
  const void* const own = t.raw();
  EXPECT_NE(own, read_elsewhere);
  EXPECT_TRUE(t.thaws_at_once());
  update_frozen(t, pool, twice);
  EXPECT_EQ(t.raw(), own);
  EXPECT_TRUE(fake::peek(t.read()).equal(at::full({8}, 12.0)));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// What the writer's own stream has read since counts, too.
TEST_F(FrozenOnDevice, AThawElsewhereWaitsForTheWritersReads) {
  FrozenTensor t = share();
  {
    const auto scope = owner_->enter(Stream::exchange);
    static_cast<void>(t.read().add(1));
  }
  const auto scope = reader_->enter(Stream::exchange);
  at::Tensor mine = std::move(t).thaw();
  mine.mul_(2);
  EXPECT_TRUE(fake::peek(mine).equal(at::full({8}, 6.0)));
  mine = at::Tensor();
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FrozenOnDevice, TheAllocatorKnowsItsReaders) {
  for (const bool faulty : {false, true}) {
    fake::reset();
    if (faulty) fake::set_fault(fake::Fault::allocator_is_not_told);
    FrozenTensor t = share();
    const auto scope = reader_->enter(Stream::compute);
    static_cast<void>(t.read().add(1));
    t = {};
    EXPECT_EQ(fake::violations().empty(), !faulty);
  }
}

TEST_F(FrozenOnDevice, CopiesBetweenDevicesAndToTheHostWait) {
  const FrozenTensor t = share(1);
  {
    const auto scope = reader_->enter(Stream::exchange);
    at::Tensor here = at::empty({8}, at::TensorOptions(at::kFloat).device(fake::device(0)));
    reader_->copy(Stream::exchange, here, t.read_on(fake::device(0)));
    EXPECT_TRUE(fake::peek(here).equal(at::full({8}, 3.0)));
  }
  EXPECT_EQ(fake::traffic().across, 32u);
  const FrozenTensor host = t.on_host();
  EXPECT_EQ(host.data<float>()[7], 3);
  EXPECT_EQ(fake::traffic().down, 32u);
  EXPECT_THAT(fake::violations(), IsEmpty());
  EXPECT_TRUE(host.on_host().read().is_same(host.read())) << "a copy of what is there";
}

// The handles of a rank end on threads of others, whose current device is another.
TEST_F(FrozenOnDevice, EventsLeaveTheCurrentDeviceAsItIs) {
  FrozenTensor t = share(1);
  const auto reader = fake::open_device(1, "its reader");
  std::thread([&t, &reader] {
    const auto* const devices = c10::impl::getDeviceGuardImpl(at::kXPU);
    ASSERT_EQ(devices->getDevice(), fake::device(0));
    const auto scope = reader->enter(Stream::compute);
    static_cast<void>(t.read());
    at::Tensor mine = std::move(t).thaw();
    mine.mul_(2);
    mine = at::Tensor();
    EXPECT_EQ(devices->getDevice(), fake::device(0));
  }).join();
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FrozenOnDevice, MissingWaitForAForeignDeviceIsFound) {
  fake::set_fault(fake::Fault::foreign_is_not_awaited);
  const FrozenTensor t = share(1);
  const auto scope = reader_->enter(Stream::exchange);
  at::Tensor here = at::empty({8}, at::TensorOptions(at::kFloat).device(fake::device(0)));
  reader_->copy(Stream::exchange, here, t.read_on(fake::device(0)));
  EXPECT_THAT(fake::violations(),
              Contains(testing::AllOf(HasSubstr("copy between devices"), HasSubstr("aten::mul"))));
}

}  // namespace frozen_on_device_test
}  // namespace grapevine
