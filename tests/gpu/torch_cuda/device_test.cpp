// CUDA behind DeviceRuntime.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/device_conformance.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace {

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance,
                         testing::Values(DeviceUnderTest{
                             "Cuda",
                             [] {
                               return open_device({at::kCUDA, 0}).value();
                             },
                             too_few_gpus(1)}),
                         name_of);

// Needs no GPU: a machine without one is told apart from a build without CUDA.
TEST(CudaDevice, IsInThisBuildWhereverItRuns) {
  const int count = gpus_here();
  EXPECT_TRUE(visible_gpus().built_in);
  const auto chosen = choose_device("auto", visible_gpus(), 0);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->is_cuda(), count > 0);
  if (count == 0) {
    EXPECT_NE(choose_device("cuda", visible_gpus(), 0).error().message.find("no CUDA GPU"),
              std::string::npos);
    EXPECT_FALSE(open_device(at::Device(at::kCUDA, 0)).ok());
    EXPECT_FALSE(device_ids({at::Device(at::kCUDA, 0)}).ok());
  }
}

TEST(CudaDevice, HasAnIdOfItsOwn) {
  if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
  std::vector<at::Device> all;
  for (int i = 0; i < gpus_here(); ++i)
    all.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
  const auto ids = device_ids(all);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(std::set<std::string>(ids->begin(), ids->end()).size(), all.size());
  EXPECT_EQ(device_ids(all).value(), *ids);
}

// As the system writes it: the name of a folder.
TEST(CudaDevice, HasAPciAddressInLowerCase) {
  if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
  std::set<std::string> all;
  for (int i = 0; i < gpus_here(); ++i) {
    const auto address = pci_address({at::kCUDA, static_cast<at::DeviceIndex>(i)});
    ASSERT_TRUE(address.ok()) << address.error().message;
    EXPECT_TRUE(
        std::regex_match(*address, std::regex("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]")))
        << *address;
    all.insert(*address);
  }
  EXPECT_EQ(static_cast<int>(all.size()), gpus_here());
}

}  // namespace
}  // namespace grapevine
