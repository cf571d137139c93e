#include "gpu/gradient_group.hpp"

#include <gtest/gtest.h>

#include "gpu/device.hpp"

namespace grapevine {
namespace {

at::Device card(int index) { return {at::kCUDA, static_cast<at::DeviceIndex>(index)}; }

bool mentions(const GroupChoice& choice, const std::string& what) {
  return choice.why.find(what) != std::string::npos && choice.why.find('\n') == std::string::npos;
}

TEST(GradientGroup, ACardForEachReplicaIsNccl) {
  const GroupChoice choice = choose_group({card(2), card(0), card(1)}, true);
  EXPECT_TRUE(choice.nccl);
  EXPECT_TRUE(mentions(choice, "3 replicas")) << choice.why;
}

TEST(GradientGroup, WhatMeetsOnTheHostSaysWhy) {
  const GroupChoice shared = choose_group({card(0), card(1), card(0)}, true);
  EXPECT_FALSE(shared.nccl);
  EXPECT_TRUE(mentions(shared, "replicas 0 and 2 share cuda:0")) << shared.why;
  const GroupChoice mixed = choose_group({card(0), at::kCPU}, true);
  EXPECT_FALSE(mixed.nccl);
  EXPECT_TRUE(mentions(mixed, "replica 1 computes on the CPU")) << mixed.why;
  const GroupChoice without = choose_group({card(0), card(1)}, false);
  EXPECT_FALSE(without.nccl);
  EXPECT_TRUE(mentions(without, "no NCCL")) << without.why;
}

class NoGroup final : public GradientGroup {
 public:
  Expected<void> mean(std::size_t, at::Tensor&) override { return {}; }
  void abort() override {}
};

TEST(GradientGroup, IsJoinedByTheDriverOfTheCards) {
  const std::vector<at::Device> cards = {card(3), card(1)};
  const Duration patience = from_seconds(7);
  EXPECT_EQ(open_group(cards, patience).value(), nullptr) << "nobody can join them";

  std::vector<int> joined;
  Duration waited{};
  bool fails = false;
  CardDriver driver;
  driver.join = [&](const std::vector<int>& asked,
                    Duration limit) -> Expected<std::shared_ptr<GradientGroup>> {
    joined = asked;
    waited = limit;
    if (fails) return Error{Errc::timeout, "card 1 did not come"};
    return std::shared_ptr<GradientGroup>(std::make_shared<NoGroup>());
  };
  register_cuda_driver(driver);
  EXPECT_NE(open_group(cards, patience).value(), nullptr);
  EXPECT_EQ(joined, (std::vector<int>{3, 1}));
  EXPECT_EQ(waited, patience);
  fails = true;
  EXPECT_EQ(open_group(cards, patience).error().message, "card 1 did not come");
  EXPECT_EQ(open_group({at::kCPU, at::kCPU}, patience).value(), nullptr);
  register_cuda_driver({});
}

}  // namespace
}  // namespace grapevine
