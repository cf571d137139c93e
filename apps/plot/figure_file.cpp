#include "apps/plot/figure_file.hpp"

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string_view>
#include <system_error>

#include "actors/record/files.hpp"
#include "apps/console/read_up_to.hpp"
#include "messages/text/lower_case.hpp"

namespace grapevine {
namespace {

constexpr std::string_view kSvgStart = "<?xml";
constexpr std::string_view kSvgSign = "<!-- grapevine plot -->\n";
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";
// Signature, then the chunk IHDR: length, name, 13 bytes, checksum (RFC 2083, section 4.1.1).
constexpr std::size_t kPngHeader = 8 + 4 + 4 + 13 + 4;
// Behind the first line of an SVG, or the header of a PNG.
constexpr std::size_t kSignWithin = 512;

void append_big_endian(std::string& bytes, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes += static_cast<char>((number >> shift) & 0xffU);
}

// A chunk tEXt: keyword, zero, text.
std::string png_sign() {
  using namespace std::string_literals;
  const std::string content = "tEXtSoftware\0grapevine plot"s;
  std::string chunk;
  append_big_endian(chunk, static_cast<std::uint32_t>(content.size() - 4));
  chunk += content;
  const auto* begin = reinterpret_cast<const Bytef*>(content.data());
  append_big_endian(chunk, static_cast<std::uint32_t>(::crc32(::crc32(0, Z_NULL, 0), begin,
                                                              static_cast<uInt>(content.size()))));
  return chunk;
}

bool begins_with(std::string_view bytes, std::string_view start) {
  return bytes.substr(0, start.size()) == start;
}

// gnuplot leaves this as it is in texts, where XML does not allow it.
void escape_ends_of_sections(std::string& svg) {
  for (std::size_t at = 0; (at = svg.find("]]>", at)) != std::string::npos;)
    svg.replace(at, 3, "]]&gt;");
}

bool is_own_figure(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string start = read_up_to(file, kSignWithin);
  const bool figure = begins_with(start, kSvgStart) || begins_with(start, kPngStart);
  return start.empty() || (figure && (start.find(kSvgSign) != std::string::npos ||
                                      start.find(png_sign()) != std::string::npos));
}

}  // namespace

Expected<FigureFormat> figure_format_of(const std::string& option,
                                        const std::filesystem::path& path) {
  const std::string end = lower_case(path.extension().string());
  if (end == ".svg") return FigureFormat::svg;
  if (end == ".png") return FigureFormat::png;
  return bad_input(option + " " + path.string() + ": use a name that ends in .svg or .png");
}

Expected<void> check_figure_path(const std::string& option, const std::filesystem::path& path) {
  std::error_code none;
  if (std::filesystem::exists(path, none)) {
    if (!std::filesystem::is_regular_file(path, none))
      return bad_input(option + " " + path.string() +
                       ": is there, and not a file: choose another name");
    if (!is_own_figure(path))
      return bad_input(option + " " + path.string() +
                       ": is there, and no figure of grapevine: choose another name, or remove it");
  }
  const auto probe = AtomicFile::create(path);
  if (!probe) return bad_input(option + ": " + probe.error().message);
  return {};
}

Expected<std::string> signed_figure(FigureFormat format, std::string bytes) {
  const bool svg = format == FigureFormat::svg;
  const std::size_t place = svg ? bytes.find('\n') + 1 : kPngHeader;  // 0: no line
  const bool figure = begins_with(bytes, svg ? kSvgStart : kPngStart) && place > 0 &&
                      bytes.size() > place && (!svg || bytes.find("</svg>") != std::string::npos);
  if (!figure) return Error{Errc::failed, "gnuplot did not write a whole figure: try again"};
  if (svg) escape_ends_of_sections(bytes);
  bytes.insert(place, svg ? std::string(kSvgSign) : png_sign());
  return bytes;
}

}  // namespace grapevine
