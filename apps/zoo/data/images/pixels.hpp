// Byte images and their way into a batch: shift, flip, normalise.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "gpu/data/data_set.hpp"

namespace grapevine {

struct PixelShape {
  int channels = 0;  // 1 or 3
  int height = 0;
  int width = 0;

  std::int64_t plane() const { return static_cast<std::int64_t>(height) * width; }
  std::int64_t size() const { return channels * plane(); }  // bytes of one image
};

// Per channel, of values in [0, 1]: normalised = (byte / 255 - mean) / deviation.
struct Normalization {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{1, 1, 1};
};

// How an image is laid down: moved right and down, black where it left, then mirrored left to
// right.
struct ImagePlacement {
  int right = 0;
  int down = 0;
  bool mirrored = false;
};

// Black pixels that a crop may have from beyond the image's edges.
struct CropPadding {
  int sides = 0;  // left, and right
  int ends = 0;   // above, and below
};

// A random crop of the image padded so, mirrored half of the time: a pure function of its
// arguments. `augment_seed` 0: the image as it is.
ImagePlacement random_placement(std::uint64_t augment_seed, std::int64_t index,
                                CropPadding padding);

// Writes shape.size() floats to `out`. `planes` is [channels][height][width].
void write_normalized(const std::uint8_t* planes, const PixelShape& shape,
                      const Normalization& normalization, const ImagePlacement& placement,
                      float* out);

// REQUIRES (checked): every index lies in the split.
void check_indices(const DataInfo& info, Split split, const std::vector<std::int64_t>& indices);

// Uninitialised tensors of a batch of `size` samples.
Batch empty_batch(const DataInfo& info, std::int64_t size);

}  // namespace grapevine
