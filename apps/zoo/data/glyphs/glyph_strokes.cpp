#include "apps/zoo/data/glyphs/glyph_strokes.hpp"

#include <array>
#include <sstream>
#include <string>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// The strokes of each style, in hundredths: "x,y x,y | x,y x,y" are two strokes of two points.
const std::array<std::vector<const char*>, 10>& style_texts() {
  static const std::array<std::vector<const char*>, 10> texts{
      {{// An oval.
        "50,0 22,18 15,50 24,83 50,100 77,82 85,50 77,17 50,0",
        // A narrow one whose ends overlap.
        "60,5 34,12 20,45 27,85 50,99 74,78 80,40 66,8 42,2",
        // A round one.
        "50,8 14,25 5,55 20,88 50,96 83,86 95,55 84,22 50,8"},
       {"50,0 50,100",
        // With an upstroke, and on a base.
        "28,24 52,0 | 52,0 52,100", "28,22 52,0 | 52,0 52,100 | 26,100 78,100"},
       {"18,25 30,6 55,0 78,14 74,38 50,68 18,98 | 18,98 85,98",
        // With a loop at the foot.
        "20,22 42,2 72,10 74,38 50,74 26,97 12,90 26,78 55,92 90,94",
        // Written like a z.
        "16,12 45,1 76,10 68,38 15,100 | 15,100 50,93 88,100"},
       {"18,12 45,0 75,12 72,36 42,48 | 42,48 76,56 84,78 60,98 32,98 14,84",
        // With a flat top.
        "18,2 80,2 | 80,2 45,40 | 45,40 75,48 84,72 62,96 32,99 14,86",
        // With a small loop in the middle.
        "20,16 50,0 76,17 60,42 38,48 40,42 60,48 82,68 70,93 40,100 14,86"},
       {// Open at the top.
        "25,2 16,60 | 16,60 92,60 | 68,10 66,100",
        // Closed.
        "65,0 10,66 | 10,66 92,66 | 65,0 65,100",
        // Written like a y.
        "20,4 15,34 26,55 50,55 74,40 | 78,2 72,50 66,100"},
       {"80,2 26,2 | 26,2 22,46 | 22,46 50,38 80,54 82,78 56,99 18,92",
        // In one sweep.
        "82,5 50,3 28,18 34,40 66,50 82,72 62,97 18,94",
        // The bar comes last and is too long.
        "30,6 24,45 | 24,45 52,40 78,56 76,86 45,100 16,90 | 28,5 92,0"},
       {"72,4 42,18 20,50 20,82 48,100 78,84 74,58 50,48 24,66",
        // With a straight back.
        "55,0 28,42 18,75 38,99 68,95 78,74 60,57 32,62 20,80",
        // With a hooked top.
        "80,12 55,2 26,25 14,60 26,92 58,98 82,80 72,56 42,52 18,70"},
       {"14,4 84,4 | 84,4 56,45 40,100",
        // Crossed.
        "14,4 84,4 | 84,4 56,45 40,100 | 30,50 78,50",
        // With a serif.
        "16,20 16,4 | 16,4 84,3 | 84,3 42,100"},
       {// A crossed loop.
        "74,14 50,0 25,14 34,38 64,58 80,80 50,100 20,80 38,56 68,36 74,14",
        // Two rings.
        "50,0 28,8 25,34 50,46 75,34 72,8 50,0 | 50,46 20,58 16,86 50,100 84,86 80,58 50,46",
        // A loop that its start does not quite close.
        "82,8 48,1 24,18 40,42 72,64 72,92 42,99 20,82 38,58 68,36 76,18"},
       {"76,20 55,2 26,12 22,38 46,52 72,38 78,14 | 78,10 74,50 70,100",
        // With a hooked tail.
        "78,22 54,2 24,14 24,40 50,52 76,34 | 80,8 78,60 60,94 26,95",
        // A ring on a slanted stem.
        "50,2 26,14 26,40 50,50 74,38 74,12 50,2 | 78,20 62,60 38,100"}}};
  return texts;
}

GlyphStyle parse_style(const char* text) {
  GlyphStyle style(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "|") {
      style.emplace_back();
      continue;
    }
    const std::size_t comma = word.find(',');
    style.back().push_back({std::stoi(word) / 100.0, std::stoi(word.substr(comma + 1)) / 100.0});
  }
  return style;
}

std::array<std::vector<GlyphStyle>, 10> parse_all() {
  std::array<std::vector<GlyphStyle>, 10> all;
  for (std::size_t digit = 0; digit < all.size(); ++digit)
    for (const char* text : style_texts()[digit]) all[digit].push_back(parse_style(text));
  return all;
}

GlyphPoint catmull_rom(const std::array<GlyphPoint, 4>& p, double t) {
  const auto blend = [t](double a, double b, double c, double d) {
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  };
  return {blend(p[0].x, p[1].x, p[2].x, p[3].x), blend(p[0].y, p[1].y, p[2].y, p[3].y)};
}

}  // namespace

const std::vector<GlyphStyle>& glyph_styles(int digit) {
  static const std::array<std::vector<GlyphStyle>, 10> styles = parse_all();
  GRAPEVINE_CHECK(digit >= 0 && digit < 10, digit);
  return styles[digit];
}

std::vector<GlyphPoint> flatten(const GlyphStroke& stroke, int steps) {
  GRAPEVINE_CHECK(stroke.size() >= 2 && steps >= 1, stroke.size());
  if (stroke.size() == 2) return stroke;
  const auto count = static_cast<int>(stroke.size());
  const bool closed = stroke.front().x == stroke.back().x && stroke.front().y == stroke.back().y;
  // Before the first and behind the last point: the neighbour across the seam, or the end itself.
  const auto at = [&](int i) {
    if (i < 0) return closed ? stroke[count - 2] : stroke.front();
    if (i >= count) return closed ? stroke[1] : stroke.back();
    return stroke[i];
  };
  std::vector<GlyphPoint> line{stroke.front()};
  for (int i = 0; i + 1 < count; ++i)
    for (int step = 1; step <= steps; ++step)
      line.push_back(
          catmull_rom({at(i - 1), at(i), at(i + 1), at(i + 2)}, static_cast<double>(step) / steps));
  return line;
}

}  // namespace grapevine
