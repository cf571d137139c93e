#include "gpu/device.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace grapevine {
namespace device_test {

constexpr Gpus kNotBuilt{false, 0};
constexpr Gpus kNoGpu{true, 0};
constexpr Gpus kThree{true, 3};

std::string chosen(const std::string& typed, const Gpus& gpus, std::int64_t local_rank = 0) {
  const auto device = choose_device(typed, gpus, local_rank);
  return device ? device->str() : device.error().message;
}

TEST(ChooseDevice, AutoTakesAGpuWhereOneIsVisible) {
  EXPECT_EQ(chosen("auto", kNotBuilt), "cpu");
  EXPECT_EQ(chosen("auto", kNoGpu), "cpu");
  EXPECT_EQ(chosen("auto", kThree), "cuda:0");
  EXPECT_EQ(chosen("cpu", kThree, 2), "cpu");
}

TEST(ChooseDevice, LocalRanksTakeTheGpusInTurn) {
  for (std::int64_t rank = 0; rank < 10; ++rank) {
    const std::string gpu = "cuda:" + std::to_string(rank % 3);
    EXPECT_EQ(chosen("cuda", kThree, rank), gpu);
    EXPECT_EQ(chosen("auto", kThree, rank), gpu);
    EXPECT_EQ(chosen("cuda:1", kThree, rank), "cuda:1");
  }
}

TEST(ChooseDevice, WorkersWithSeveralTakeNeighbours) {
  const auto text = [](const std::string& typed, std::int64_t worker, std::int64_t each) {
    std::string all;
    const auto devices = choose_devices(typed, kThree, worker, each);
    for (const at::Device device : *devices) all += device.str() + " ";
    return all;
  };
  EXPECT_EQ(text("cuda", 0, 3), "cuda:0 cuda:1 cuda:2 ");
  EXPECT_EQ(text("auto", 1, 2), "cuda:2 cuda:0 ");
  EXPECT_EQ(text("cuda:1", 4, 2), "cuda:1 cuda:1 ");
  EXPECT_EQ(text("cpu", 4, 2), "cpu cpu ");
  EXPECT_FALSE(choose_devices("cuda", kNoGpu, 0, 2).ok());
}

TEST(ChooseDevice, RefusesInOneLineThatSaysWhatToDo) {
  EXPECT_EQ(chosen("cuda", kNotBuilt),
            "--device cuda: CUDA is not in this build: use cpu or auto, or build with a LibTorch "
            "that has CUDA");
  EXPECT_EQ(chosen("cuda:1", kNoGpu),
            "--device cuda:1: no CUDA GPU is visible here: use cpu or auto");
  EXPECT_EQ(chosen("cuda:3", kThree),
            "--device cuda:3: the visible GPUs are cuda:0..cuda:2: give one of them");
  for (const char* typed : {"cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda1", "cuda:99999999999"})
    EXPECT_EQ(chosen(typed, kThree),
              std::string("--device ") + typed + ": expected cpu, cuda, cuda:INDEX or auto");
  EXPECT_EQ(chosen("cdua", kThree),
            "unknown --device 'cdua': did you mean 'cuda'? valid: cpu, cuda, cuda:INDEX, auto");
  for (const Gpus& gpus : {kNotBuilt, kNoGpu, kThree})
    EXPECT_EQ(choose_device("tpu", gpus, 0).error().code, Errc::bad_input);
}

// Whether choose_device() would take it on some machine.
TEST(CheckDeviceName, IsWhatSomeMachineHas) {
  const Gpus most{true, std::numeric_limits<at::DeviceIndex>::max()};
  for (const char* typed : {"cpu", "auto", "cuda", "cuda:0", "cuda:126", "cuda:127", "cuda:128",
                            "cuda:", "cuda:x", "cuda:-1", "cdua", "tpu", ""}) {
    const auto checked = check_device_name(typed);
    EXPECT_EQ(checked.ok(), choose_device(typed, most, 0).ok()) << typed;
    if (!checked) {
      EXPECT_EQ(checked.error().code, Errc::bad_input) << typed;
    }
  }
  EXPECT_EQ(check_device_name("cuda:127").error().message,
            "--device cuda:127: no machine has so many GPUs: give the number that the GPU has on "
            "its machine, from 0, or cuda");
  EXPECT_EQ(check_device_name("cuda:x").error().message, chosen("cuda:x", kThree));
  EXPECT_EQ(check_device_name("cdua").error().message, chosen("cdua", kThree));
}

TEST(Device, ADriverIsAskedForItsGpu) {
  int asked = -1;
  register_cuda_driver({[] { return 2; },
                        [&asked](int gpu) -> Expected<std::shared_ptr<DeviceRuntime>> {
                          asked = gpu;
                          return host_runtime();
                        }});
  EXPECT_TRUE(visible_gpus().built_in);
  EXPECT_EQ(visible_gpus().visible, 2);
  EXPECT_TRUE(open_device(at::Device(at::kCUDA, 1)).ok());
  EXPECT_EQ(asked, 1);
  register_cuda_driver({});
  EXPECT_FALSE(visible_gpus().built_in);
  EXPECT_EQ(open_device(at::Device(at::kCUDA, 1)).error().code, Errc::unavailable);
  EXPECT_TRUE(open_device(at::kCPU).value()->in_host_memory());
}

}  // namespace device_test
}  // namespace grapevine
