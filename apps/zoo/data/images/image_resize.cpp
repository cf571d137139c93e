#include "apps/zoo/data/images/image_resize.hpp"

#include <algorithm>
#include <cmath>

#include "apps/zoo/data/random_stream.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// Which source pixels make one output pixel.
struct Taps {
  int first = 0;
  std::vector<float> weights;  // sum 1
};

// For `count` output pixels that cover [start, start + length) of an axis of `size` pixels.
std::vector<Taps> axis_taps(double start, double length, int count, int size) {
  const double scale = length / count;
  const double reach = std::max(1.0, scale);
  std::vector<Taps> axis(count);
  for (int out = 0; out < count; ++out) {
    const double centre = start + (out + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(centre - reach)), 0, size - 1);
    const int last = std::clamp(static_cast<int>(std::ceil(centre + reach)), first, size - 1);
    Taps& taps = axis[out];
    taps.first = first;
    double sum = 0;
    for (int i = first; i <= last; ++i) {
      const double weight = std::max(0.0, 1.0 - std::abs(i + 0.5 - centre) / reach);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    GRAPEVINE_CHECK(sum > 0, "a region outside its image: ", start, " + ", length, " of ", size);
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
  }
  return axis;
}

// One source row, resized: [columns][3].
void resize_row(const std::uint8_t* row, const std::vector<Taps>& columns, float* out) {
  for (const Taps& taps : columns) {
    float sum[3] = {0, 0, 0};
    const std::uint8_t* pixel = row + std::size_t{3} * taps.first;
    for (const float weight : taps.weights)
      for (float& channel : sum) channel += weight * static_cast<float>(*pixel++);
    out = std::copy(sum, sum + 3, out);
  }
}

}  // namespace

std::vector<std::uint8_t> resize(const Image& image, const ImageRegion& region,
                                 const ImageExtent& extent) {
  const std::vector<Taps> columns =
      axis_taps(region.x, region.width, extent.width, image.extent.width);
  const std::vector<Taps> rows =
      axis_taps(region.y, region.height, extent.height, image.extent.height);
  const std::size_t stride = std::size_t{3} * extent.width;
  const int first_row = rows.front().first;
  const int last_row = rows.back().first + static_cast<int>(rows.back().weights.size());
  std::vector<float> narrowed(stride * (last_row - first_row));
  for (int y = first_row; y < last_row; ++y)
    resize_row(image.rgb.data() + std::size_t{3} * image.extent.width * y, columns,
               narrowed.data() + stride * (y - first_row));
  const std::size_t plane = std::size_t{1} * extent.width * extent.height;
  std::vector<std::uint8_t> planes(3 * plane);
  std::vector<float> line(stride);
  for (int y = 0; y < extent.height; ++y) {
    std::fill(line.begin(), line.end(), 0.0F);
    const float* from = narrowed.data() + stride * (rows[y].first - first_row);
    for (const float weight : rows[y].weights)
      for (std::size_t i = 0; i < stride; ++i) line[i] += weight * *from++;
    for (std::size_t i = 0; i < stride; ++i)
      planes[i % 3 * plane + std::size_t{1} * y * extent.width + i / 3] =
          static_cast<std::uint8_t>(std::clamp(line[i] + 0.5F, 0.0F, 255.0F));
  }
  return planes;
}

ImageRegion centre_region(const ImageExtent& image, const ImageExtent& shape, double fraction) {
  const double scale = fraction * std::min(static_cast<double>(image.width) / shape.width,
                                           static_cast<double>(image.height) / shape.height);
  const double width = scale * shape.width;
  const double height = scale * shape.height;
  return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

ImageRegion random_region(const ImageExtent& image, std::uint64_t seed, std::int64_t index) {
  RandomStream random(mix_seed(mix_seed(seed, 0x63726f70), static_cast<std::uint64_t>(index)));
  const double area = static_cast<double>(image.width) * image.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * random.uniform(0.08, 1.0);
    const double ratio = std::exp(random.uniform(std::log(3.0 / 4.0), std::log(4.0 / 3.0)));
    const double width = std::sqrt(wanted * ratio);
    const double height = std::sqrt(wanted / ratio);
    if (width > image.width || height > image.height) continue;
    return {random.uniform(0, image.width - width), random.uniform(0, image.height - height), width,
            height};
  }
  const int side = std::min(image.width, image.height);
  return centre_region(image, {side, side}, 1.0);
}

}  // namespace grapevine
