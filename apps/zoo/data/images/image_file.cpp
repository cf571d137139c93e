#include "apps/zoo/data/images/image_file.hpp"

#include <utility>

#include "apps/zoo/data/images/image_codecs.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 28;

}  // namespace

Expected<ImageFile> ImageFile::open(const std::string& path) {
  auto bytes = read_file(path, kMaxFileBytes);
  if (!bytes) return bytes.error();
  ImageFile file(path, std::move(*bytes));
  file.jpeg_ = is_jpeg(file.bytes_);
  if (!file.jpeg_ && !is_png(file.bytes_))
    return bad_input(path + ": neither a JPEG nor a PNG image (by its first bytes)");
  auto extent = file.jpeg_ ? jpeg_extent(file.bytes_) : png_extent(file.bytes_);
  if (!extent) return bad_input(path + ": damaged image: " + extent.error().message);
  if (std::int64_t{extent->width} * extent->height > kMaxPixels)
    return bad_input(path + ": " + std::to_string(extent->width) + " x " +
                     std::to_string(extent->height) + " pixels, more than " +
                     std::to_string(kMaxPixels) + " in all");
  file.extent_ = *extent;
  return file;
}

Expected<Image> ImageFile::decode(int reduction) const {
  GRAPEVINE_CHECK(reduction == 1 || reduction == 2 || reduction == 4 || reduction == 8, reduction);
  auto image = jpeg_ ? decode_jpeg(bytes_, reduction) : decode_png(bytes_);
  if (!image) return bad_input(path_ + ": damaged image: " + image.error().message);
  return image;
}

}  // namespace grapevine
