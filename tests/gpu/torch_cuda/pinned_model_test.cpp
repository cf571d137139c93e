// A model in pinned memory of the host, as a GPU reads it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "gpu/memory/model_memory.hpp"
#include "gpu/memory/transfers.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace pinned_model_test {

constexpr std::size_t kMuch = std::size_t{1} << 30;

TEST(PinnedModel, IsUploadedFromWhereItLies) {
  if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
  const auto device = open_device(at::Device(at::kCUDA, 0)).value();
  const auto memory = ModelMemory::make(
      [device](std::size_t bytes) { return device->pinned_memory(bytes); }, kMuch);
  Transfers transfers(device, kMuch, from_seconds(60));
  Transfers::DeviceSlot slot;
  for (const int size : {1000, 10 << 20}) {
    FrozenTensor z = memory->adopt(FrozenTensor::freeze(at::arange(size, at::kFloat)));
    ASSERT_TRUE(is_pinned_model(z.read()));
    const void* const place = z.raw();
    for (int step = 0; step < 5; ++step) {
      const at::Tensor up = transfers.upload(z, slot);
      at::Tensor doubled;
      {
        const auto scope = transfers.begin_compute();
        doubled = up * 2;
        transfers.end_compute();
      }
      const at::Tensor back = transfers.download(doubled);
      ASSERT_TRUE(transfers.finish());
      EXPECT_TRUE(back.equal(z.read() * 2)) << "step " << step;
      EXPECT_TRUE(z.sole_owner());
      at::Tensor next = std::move(z).thaw();
      next.add_(1);
      z = FrozenTensor::freeze(std::move(next));
      EXPECT_EQ(z.raw(), place) << "written in place";
    }
  }
  EXPECT_EQ(transfers.staged_bytes(), 0u);
}

}  // namespace pinned_model_test
}  // namespace grapevine
