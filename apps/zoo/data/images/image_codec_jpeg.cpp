// jpeglib.h uses FILE and size_t without including their headers.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>
// jerror.h must follow jpeglib.h.
#include <jerror.h>

#include <csetjmp>

#include "apps/zoo/data/images/image_codecs.hpp"

namespace grapevine {
namespace {

// libjpeg reports through these callbacks. `base` comes first: libjpeg hands back its address.
struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  info->err->format_message(info, manager->message);
  std::longjmp(manager->escape, 1);
}

// Warnings are damage (libjpeg would continue with grey pixels), but for those that lose no pixel.
void warn(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      fail(info);
  }
}

void print_nothing(j_common_ptr /*info*/) {}

// One decoding. Each step is a function of its own that holds no object with a destructor, because
// longjmp() out of libjpeg would skip it; all state that must survive lives in members. A step that
// returns false leaves its reason in message().
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = fail;
    errors_.base.emit_message = warn;
    errors_.base.output_message = print_nothing;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header(const std::uint8_t* data, std::size_t size) {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, data, size);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // REQUIRES: read_header(). Fixes width(), height() and components().
  bool start(int reduction) {
    if (setjmp(errors_.escape) != 0) return false;
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(reduction);
    jpeg_start_decompress(&info_);
    return true;
  }

  // REQUIRES: start(); `out` has room for width() * height() * components() bytes.
  bool read_rows(std::uint8_t* out) {
    if (setjmp(errors_.escape) != 0) return false;
    const std::size_t stride = std::size_t{info_.output_width} * info_.output_components;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = out + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  ImageExtent stored_extent() const {
    return {static_cast<int>(info_.image_width), static_cast<int>(info_.image_height)};
  }
  ImageExtent extent() const {
    return {static_cast<int>(info_.output_width), static_cast<int>(info_.output_height)};
  }
  int components() const { return info_.output_components; }
  // Adobe's programs store CMYK as 255 - ink.
  bool inverted() const { return info_.saw_Adobe_marker != 0; }
  Error error() const { return bad_input(errors_.message); }

 private:
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
};

std::vector<std::uint8_t> cmyk_to_rgb(const std::vector<std::uint8_t>& cmyk, bool inverted) {
  std::vector<std::uint8_t> rgb(cmyk.size() / 4 * 3);
  const auto light = [inverted](int value) { return inverted ? value : 255 - value; };
  for (std::size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel)
    for (std::size_t c = 0; c < 3; ++c)
      rgb[pixel * 3 + c] = static_cast<std::uint8_t>(
          (light(cmyk[pixel * 4 + c]) * light(cmyk[pixel * 4 + 3]) + 127) / 255);
  return rgb;
}

}  // namespace

bool is_jpeg(const Bytes& bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

Expected<ImageExtent> jpeg_extent(const Bytes& bytes) {
  JpegReader reader;
  if (!reader.read_header(bytes.data(), bytes.size())) return reader.error();
  return reader.stored_extent();
}

Expected<Image> decode_jpeg(const Bytes& bytes, int reduction) {
  JpegReader reader;
  if (!reader.read_header(bytes.data(), bytes.size()) || !reader.start(reduction))
    return reader.error();
  Image image;
  image.extent = reader.extent();
  image.rgb.resize(static_cast<std::size_t>(image.extent.width) * image.extent.height *
                   reader.components());
  if (!reader.read_rows(image.rgb.data())) return reader.error();
  if (reader.components() == 4) image.rgb = cmyk_to_rgb(image.rgb, reader.inverted());
  return image;
}

}  // namespace grapevine
