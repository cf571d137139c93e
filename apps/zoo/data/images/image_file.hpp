// One JPEG or PNG file: its size without decoding it, and its pixels.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/zoo/data/file_bytes.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct ImageExtent {
  int width = 0;
  int height = 0;
};

// Red, green, blue, from the top left: rgb[(y * width + x) * 3 + channel].
struct Image {
  ImageExtent extent;
  std::vector<std::uint8_t> rgb;
};

// Not thread-safe; several objects may be used at once.
class ImageFile {
 public:
  // Reads the file and its header. The kind is told by the first bytes: ImageNet has a PNG file
  // that is named .JPEG. Errors name the file: unreadable, neither kind, a damaged header, more
  // than kMaxPixels pixels.
  static Expected<ImageFile> open(const std::string& path);

  ImageExtent extent() const { return extent_; }

  // The pixels: grey and palettes become RGB, CMYK is converted, transparency is laid over white,
  // 16 bits become 8. `reduction` 1, 2, 4 or 8: JPEG files may come out smaller by up to that
  // factor, which costs much less (the inverse DCT is taken at the smaller size). Errors name the
  // file and what is damaged; nothing is printed.
  Expected<Image> decode(int reduction) const;

  static constexpr std::int64_t kMaxPixels = std::int64_t{1} << 27;

 private:
  ImageFile(std::string path, Bytes bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}

  std::string path_;
  Bytes bytes_;
  ImageExtent extent_;
  bool jpeg_ = false;
};

}  // namespace grapevine
