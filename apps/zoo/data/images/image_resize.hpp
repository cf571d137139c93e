// Cutting a region out of an image and bringing it to a size.
#pragma once
#include <cstdint>
#include <vector>

#include "apps/zoo/data/images/image_file.hpp"

namespace grapevine {

// A rectangle in pixels of an image; fractions cut through pixels.
struct ImageRegion {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// The region as [3][extent.height][extent.width] bytes. Bilinear; where it shrinks, the triangle
// widens to cover all source pixels, so that nothing aliases. A region of whole pixels at its own
// size comes out unchanged. REQUIRES: the region lies in the image (but for rounding) and is not
// empty.
std::vector<std::uint8_t> resize(const Image& image, const ImageRegion& region,
                                 const ImageExtent& extent);

// The largest rectangle of the extent's shape in the middle of an image, `fraction` (0, 1] of it.
ImageRegion centre_region(const ImageExtent& image, const ImageExtent& shape, double fraction);

// Random-resized crop (Szegedy et al. 2015): 8 % to 100 % of the area, aspect ratio 3/4 to 4/3; a
// pure function of its arguments.
ImageRegion random_region(const ImageExtent& image, std::uint64_t seed, std::int64_t index);

}  // namespace grapevine
