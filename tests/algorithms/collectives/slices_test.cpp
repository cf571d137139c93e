#include "algorithms/collectives/slices.hpp"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace grapevine {
namespace slices_test {

// A view that is made without ATen is the one that ATen makes.
TEST(Slices, AreViewsAsNarrowMakesThem) {
  constexpr std::int32_t kRanks = 3, kPieces = 2;
  for (const std::int64_t d : {3, 17, 1000}) {
    const at::Tensor all = at::arange(d + 5, at::kFloat);
    const at::Tensor data = all.narrow(0, 5, d);  // itself a view
    for (std::int32_t slice = 0; slice < kRanks; ++slice)
      for (std::int32_t piece = 0; piece < kPieces; ++piece) {
        const PieceBounds bounds = bounds_of_piece(d, kRanks, slice, kPieces, piece);
        const at::Tensor view =
            view_of(data, bounds_of_piece(data.numel(), kRanks, slice, kPieces, piece));
        const at::Tensor expected = data.narrow(0, bounds.begin, bounds.length);
        EXPECT_TRUE(view.equal(expected));
        EXPECT_EQ(view.data_ptr(), expected.data_ptr());
        EXPECT_TRUE(is_flat_float(view));
        EXPECT_EQ(view.strides(), expected.strides());
        EXPECT_EQ(view.storage_offset(), expected.storage_offset());
      }
  }
}

// FrozenTensor notices writes by the version.
TEST(Slices, ShareTheVersionOfTheirVector) {
  const at::Tensor data = at::zeros({12});
  at::Tensor view = view_of(data, bounds_of_piece(data.numel(), 3, 1, 1, 0));
  const auto before = data._version();
  view.add_(1);
  EXPECT_GT(data._version(), before);
  EXPECT_EQ(data.sum().item<float>(), 4);
}

TEST(Slices, WorkInInferenceMode) {
  const c10::InferenceMode mode;
  const at::Tensor data = at::ones({12});
  at::Tensor view = view_of(data, bounds_of_piece(data.numel(), 3, 1, 1, 0));
  view.add_(1);
  EXPECT_EQ(data.sum().item<float>(), 16);
}

}  // namespace slices_test
}  // namespace grapevine
