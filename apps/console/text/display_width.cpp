#include "apps/console/text/display_width.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <utility>

namespace grapevine {
namespace {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {lead, 1, false};
  char32_t value = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {lead, 1, false};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  return {value, bytes, true};
}

struct Range {
  char32_t first;
  char32_t last;
};

// The C library's wcwidth() knows these too, but only under a UTF-8 locale that was set.
constexpr std::array<Range, 7> kZeroWidth{{{0x300, 0x36f},
                                           {0x483, 0x489},
                                           {0x591, 0x5bd},
                                           {0x200b, 0x200f},
                                           {0x20d0, 0x20ff},
                                           {0xfe00, 0xfe0f},
                                           {0xfe20, 0xfe2f}}};
constexpr std::array<Range, 8> kDoubleWidth{{{0x1100, 0x115f},
                                             {0x2e80, 0x303e},
                                             {0x3041, 0xa4cf},
                                             {0xac00, 0xd7a3},
                                             {0xf900, 0xfaff},
                                             {0xff00, 0xff60},
                                             {0x1f300, 0x1faff},
                                             {0x20000, 0x3fffd}}};

template <std::size_t N>
bool within(const std::array<Range, N>& ranges, char32_t value) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& r) { return value >= r.first && value <= r.last; });
}

int width_of(const CodePoint& point) {
  if (!point.valid) return 1;
  if (within(kZeroWidth, point.value)) return 0;
  return within(kDoubleWidth, point.value) ? 2 : 1;
}

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    width += width_of(point);
    text.remove_prefix(point.bytes);
  }
  return width;
}

std::string truncate_to_width(std::string_view text, int columns) {
  std::size_t end = 0;
  for (int width = 0; end < text.size();) {
    const CodePoint point = decode_utf8(text.substr(end));
    width += width_of(point);
    if (width > columns) break;
    end += point.bytes;
  }
  return std::string(text.substr(0, end));
}

std::vector<std::string> wrapped_lines(const std::string& text, int columns,
                                       const std::string& indent) {
  const std::size_t first_word = std::min(text.find_first_not_of(' '), text.size());
  std::vector<std::string> lines;
  std::string line = text.substr(0, first_word);
  bool has_word = false;
  std::istringstream words(text.substr(first_word));
  for (std::string word; std::getline(words, word, ' '); has_word = true) {
    if (has_word && display_width(line + " " + word) > columns) {
      lines.push_back(std::move(line));
      line = indent + word;
    } else {
      line += (has_word ? " " : "") + word;
    }
  }
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace grapevine
