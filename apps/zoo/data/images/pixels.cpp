#include "apps/zoo/data/images/pixels.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "apps/zoo/data/random_stream.hpp"
#include "messages/check.hpp"

namespace grapevine {

ImagePlacement random_placement(std::uint64_t augment_seed, std::int64_t index,
                                CropPadding padding) {
  if (augment_seed == 0) return {};
  RandomStream stream(mix_seed(augment_seed, static_cast<std::uint64_t>(index)));
  ImagePlacement placement;
  placement.right = static_cast<int>(stream.below(2 * padding.sides + 1)) - padding.sides;
  placement.down = static_cast<int>(stream.below(2 * padding.ends + 1)) - padding.ends;
  placement.mirrored = stream.chance(0.5);
  return placement;
}

void write_normalized(const std::uint8_t* planes, const PixelShape& shape,
                      const Normalization& normalization, const ImagePlacement& placement,
                      float* out) {
  std::array<float, 256> value{};
  for (int channel = 0; channel < shape.channels; ++channel) {
    const float mean = normalization.mean[channel];
    const float deviation = normalization.deviation[channel];
    for (int byte = 0; byte < 256; ++byte)
      value[byte] = (static_cast<float>(byte) / 255.0F - mean) / deviation;
    for (int y = 0; y < shape.height; ++y, out += shape.width) {
      const int from_y = y - placement.down;
      std::fill(out, out + shape.width, value[0]);
      if (from_y < 0 || from_y >= shape.height) continue;
      const std::uint8_t* row = planes + channel * shape.plane() + from_y * shape.width;
      const int first = std::max(0, placement.right);
      const int last = std::min(shape.width, shape.width + placement.right);
      for (int x = first; x < last; ++x) out[x] = value[row[x - placement.right]];
      if (placement.mirrored) std::reverse(out, out + shape.width);
    }
  }
}

void check_indices(const DataInfo& info, Split split, const std::vector<std::int64_t>& indices) {
  const std::int64_t size = split == Split::train ? info.train_size : info.test_size;
  for (const std::int64_t index : indices)
    GRAPEVINE_CHECK(index >= 0 && index < size, info.name, ": sample ", index, " of ", size);
}

Batch empty_batch(const DataInfo& info, std::int64_t size) {
  std::vector<std::int64_t> shape{size};
  shape.insert(shape.end(), info.sample_shape.begin(), info.sample_shape.end());
  const bool regression = info.task == Task::regression;
  return {at::empty(shape, at::kFloat),
          regression ? at::empty({size, info.classes}, at::kFloat) : at::empty({size}, at::kLong)};
}

}  // namespace grapevine
