// libjpeg and libpng behind plain functions. Errors say what is damaged, without the file's name.
// Thread-safe; nothing is printed, no call ends the process.
#pragma once
#include "apps/zoo/data/file_bytes.hpp"
#include "apps/zoo/data/images/image_file.hpp"

namespace grapevine {

bool is_jpeg(const Bytes& bytes);
Expected<ImageExtent> jpeg_extent(const Bytes& bytes);
// REQUIRES: jpeg_extent(bytes) gave an acceptable size.
Expected<Image> decode_jpeg(const Bytes& bytes, int reduction);

bool is_png(const Bytes& bytes);
Expected<ImageExtent> png_extent(const Bytes& bytes);
// REQUIRES: png_extent(bytes) gave an acceptable size.
Expected<Image> decode_png(const Bytes& bytes);

}  // namespace grapevine
