#include <png.h>

#include <algorithm>
#include <array>

#include "apps/zoo/data/images/image_codecs.hpp"

namespace grapevine {
namespace {

// libpng's simplified interface: errors arrive as text in the struct, no longjmp() leaves the
// library.
class PngReader {
 public:
  PngReader() { image_.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool read_header(const Bytes& bytes) {
    return png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()) != 0;
  }

  // REQUIRES: read_header(). `rgb` has room for width * height * 3 bytes.
  bool read_pixels(std::uint8_t* rgb) {
    image_.format = PNG_FORMAT_RGB;
    // Without a gamma chunk 16-bit files are meant as sRGB too, as image viewers take them.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    const png_color white{255, 255, 255};
    return png_image_finish_read(&image_, &white, rgb, 0, nullptr) != 0;
  }

  ImageExtent extent() const {
    return {static_cast<int>(image_.width), static_cast<int>(image_.height)};
  }
  Error error() const { return bad_input(image_.message); }

 private:
  png_image image_{};
};

}  // namespace

bool is_png(const Bytes& bytes) {
  constexpr std::array<std::uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  return bytes.size() >= kSignature.size() &&
         std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

Expected<ImageExtent> png_extent(const Bytes& bytes) {
  PngReader reader;
  if (!reader.read_header(bytes)) return reader.error();
  return reader.extent();
}

Expected<Image> decode_png(const Bytes& bytes) {
  PngReader reader;
  if (!reader.read_header(bytes)) return reader.error();
  Image image;
  image.extent = reader.extent();
  image.rgb.resize(static_cast<std::size_t>(image.extent.width) * image.extent.height * 3);
  if (!reader.read_pixels(image.rgb.data())) return reader.error();
  return image;
}

}  // namespace grapevine
