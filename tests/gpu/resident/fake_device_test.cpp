// The fake device itself: it finds what it is for, and nothing else.
#include "tests/gpu/fake_device/fake_device.hpp"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "messages/device/ready_event.hpp"
#include "tests/gpu/fake_device/fake_group.hpp"

namespace grapevine {
namespace fake_device_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

at::TensorOptions on_device(int index = 0) {
  return at::TensorOptions(at::kFloat).device(fake::device(index));
}

class FakeDevice : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  const std::shared_ptr<DeviceRuntime> a_ = fake::open_device(0, "a");
  const std::shared_ptr<DeviceRuntime> b_ = fake::open_device(0, "b");
};

TEST_F(FakeDevice, ComputesTheBitsOfTheCpu) {
  torch::manual_seed(3);
  const at::Tensor x = at::randn({7, 5}), y = at::randn({7, 5});
  const at::Tensor here = x.to(fake::device(0));
  EXPECT_EQ(here.device(), fake::device(0));
  EXPECT_TRUE(here.add(y.to(fake::device(0)), 0.3).t().cpu().equal(x.add(y, 0.3).t()));
  EXPECT_TRUE(here.mm(here.t()).cpu().equal(x.mm(x.t())));
  EXPECT_TRUE(
      at::cat({here, here}, 1).narrow(1, 3, 4).cpu().equal(at::cat({x, x}, 1).narrow(1, 3, 4)));
  at::Tensor in_place = here.clone();
  in_place[2].mul_(2).add_(1);
  EXPECT_EQ(here.sum().item<float>(), x.sum().item<float>());
  EXPECT_TRUE(in_place[2].cpu().equal(x[2] * 2 + 1));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// abs(), and so isfinite(), fills an output that begins without elements.
TEST_F(FakeDevice, GivesMemoryToAnOutputThatGrows) {
  torch::manual_seed(5);
  const at::Tensor x = at::randn({7, 5}), here = x.to(fake::device(0));
  const auto scope = a_->enter(Stream::compute);
  EXPECT_TRUE(here.abs().cpu().equal(x.abs()));
  EXPECT_TRUE(here.isfinite().all().item<bool>());
  EXPECT_FALSE(here.div(0.0).isfinite().any().item<bool>());
  at::Tensor product = at::empty({0}, on_device());
  at::mul_out(product, here, here);
  EXPECT_EQ(product.device(), fake::device(0));
  EXPECT_TRUE(product.cpu().equal(x * x));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeDevice, RunsTheBackwardPassInTheStreamOfTheForwardPass) {
  const auto scope = a_->enter(Stream::compute);
  torch::manual_seed(4);
  torch::nn::Linear host(6, 3), here(6, 3);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 2; ++i) {
      here->parameters()[i].copy_(host->parameters()[i]);
      at::Tensor p = here->parameters()[i];
      p.set_data(p.to(fake::device(0)));
    }
  }
  const at::Tensor x = at::randn({4, 6});
  host->forward(x).square().sum().backward();
  here->forward(x.to(fake::device(0))).square().sum().backward();
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(here->parameters()[i].grad().cpu().equal(host->parameters()[i].grad()));
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeDevice, HostThatTouchesItsMemoryDies) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor t = at::zeros({4}, on_device());
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(t.data_ptr())),
               "the host touched memory of the fake device");
}

TEST_F(FakeDevice, RefusesOperandsOnTheHost) {
  const at::Tensor t = at::zeros({4}, on_device());
  EXPECT_THROW(t.add(at::ones({4})), c10::Error);
  EXPECT_NO_THROW(t.add(at::scalar_tensor(1.0)));
}

TEST_F(FakeDevice, MissingWaitIsAViolationThatNamesBothOperations) {
  at::Tensor t, u;
  {
    const auto scope = a_->enter(Stream::exchange);
    t = at::zeros({4}, on_device());
    t.add_(1);
  }
  {
    const auto scope = b_->enter(Stream::compute);
    u = t.mul(2);
  }
  EXPECT_THAT(fake::violations(),
              ElementsAre(AllOf(HasSubstr("'aten::mul"), HasSubstr("b's compute"),
                                HasSubstr("'aten::add"), HasSubstr("a's exchange"))));
}

TEST_F(FakeDevice, AWaitOrTheHostOrdersWork) {
  for (const bool by_host : {false, true}) {
    fake::reset();
    at::Tensor t;
    {
      const auto scope = a_->enter(Stream::exchange);
      t = at::ones({4}, on_device());
    }
    const EventHandle event = a_->record(Stream::exchange);
    if (by_host) {
      ASSERT_TRUE(a_->host_wait(event, std::chrono::seconds(1)));
    } else {
      b_->wait(Stream::compute, event);
    }
    const auto scope = b_->enter(Stream::compute);
    b_->record_stream(t, Stream::compute);
    EXPECT_EQ(t.sum().item<float>(), 4);
    EXPECT_THAT(fake::violations(), IsEmpty()) << by_host;
  }
}

TEST_F(FakeDevice, OverwritingWhatAnotherStreamReadsIsAViolation) {
  const auto scope = a_->enter(Stream::exchange);
  at::Tensor t = at::ones({4}, on_device());
  b_->wait(Stream::compute, a_->record(Stream::exchange));
  {
    const auto reader = b_->enter(Stream::compute);
    b_->record_stream(t, Stream::compute);
    static_cast<void>(t.mul(2));
  }
  t.add_(1);
  EXPECT_THAT(fake::violations(),
              ElementsAre(AllOf(HasSubstr("overwrites what is read by 'aten::mul"))));
}

TEST_F(FakeDevice, FreeingWhatAnotherStreamUsesIsAViolationUnlessTheAllocatorKnows) {
  for (const bool told : {true, false}) {
    fake::reset();
    const auto scope = a_->enter(Stream::exchange);
    at::Tensor t = at::ones({4}, on_device());
    b_->wait(Stream::compute, a_->record(Stream::exchange));
    {
      const auto reader = b_->enter(Stream::compute);
      if (told) b_->record_stream(t, Stream::compute);
      static_cast<void>(t.mul(2));
    }
    t = at::Tensor();
    EXPECT_EQ(fake::violations().size(), told ? 0u : 1u);
  }
}

TEST_F(FakeDevice, PinnedMemoryOpensWhenTheHostHasWaited) {
  for (const bool waits : {true, false}) {
    fake::reset();
    const std::shared_ptr<void> memory = a_->pinned_memory(16);
    const at::Tensor host = at::from_blob(memory.get(), {4}, at::kFloat);
    const at::Tensor t = at::full({4}, 5, on_device());
    a_->wait(Stream::download, nullptr);
    static_cast<void>(t.sum().item<float>());  // the default stream is done
    a_->copy(Stream::download, host, t);
    const EventHandle copied = a_->record(Stream::download);
    if (waits) {
      ASSERT_TRUE(a_->host_wait(copied, std::chrono::seconds(1)));
    }
    EXPECT_EQ(host.sum().item<float>(), 20);
    EXPECT_EQ(fake::violations().size(), waits ? 0u : 1u);
    ASSERT_TRUE(a_->host_wait(copied, std::chrono::seconds(1)));
  }
}

TEST_F(FakeDevice, AnEventOfADeviceThatIsNotTheCurrentOneIsAViolation) {
  for (const bool guarded : {false, true}) {
    fake::reset();
    std::optional<c10::DeviceGuard> guard;
    if (guarded) guard.emplace(fake::device(1));
    {
      c10::Event event(at::kXPU);
      event.record(current_stream(fake::device(1)));
      event.block(current_stream(fake::device(1)));
    }
    if (guarded) {
      EXPECT_THAT(fake::violations(), IsEmpty());
    } else {
      EXPECT_THAT(fake::violations(),
                  ElementsAre("an event is recorded on xpu:1 while xpu:0 is the current device",
                              "an event is awaited on xpu:1 while xpu:0 is the current device",
                              "an event ends on xpu:1 while xpu:0 is the current device"));
    }
  }
}

TEST_F(FakeDevice, CountsBytesByDirection) {
  const at::Tensor up = at::ones({10}).to(fake::device(0));
  const at::Tensor across = up.to(fake::device(1));
  static_cast<void>(across.cpu());
  const fake::Traffic bytes = fake::traffic();
  EXPECT_EQ(bytes.up, 40u);
  EXPECT_EQ(bytes.across, 40u);
  EXPECT_EQ(bytes.down, 40u);
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// ---- groups over processes

// Open handles of this process on the memory of groups.
std::size_t group_memories() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the listing's own descriptor
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    count += target.string().find("grapevine-fake-group") != std::string::npos;
  }
  return count;
}

// It has no name that a killed process could leave.
TEST(FakeGroup, LeavesNoMemoryBehind) {
  const std::size_t before = group_memories();
  const std::string id = fake::make_group_id();
  EXPECT_EQ(group_memories(), before + 1);
  const auto join = [&id](std::size_t replica) {
    return fake::join_group(id, replica, 1, 2, std::chrono::seconds(60), nullptr);
  };
  {
    auto other = std::async(std::launch::async, join, 1);
    const auto own = join(0);
    ASSERT_TRUE(own && other.get());
    EXPECT_EQ(group_memories(), before + 1) << "its own";
  }
  EXPECT_EQ(group_memories(), before);
  const auto late = join(1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::peer_down);
}

}  // namespace fake_device_test
}  // namespace grapevine
