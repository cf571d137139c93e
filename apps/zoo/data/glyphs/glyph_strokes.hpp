// The pen strokes of handwritten digits.
#pragma once
#include <vector>

namespace grapevine {

struct GlyphPoint {
  double x = 0;  // 0 left .. 1 right
  double y = 0;  // 0 top .. 1 bottom
};

// A smooth curve through its points (Catmull-Rom); two points make a straight line. Closed without
// a corner where the first point equals the last. Corners are where two strokes meet.
using GlyphStroke = std::vector<GlyphPoint>;

// One way to write a digit.
using GlyphStyle = std::vector<GlyphStroke>;

// The ways in which people write `digit` (0 .. 9); at least two. Thread-safe.
const std::vector<GlyphStyle>& glyph_styles(int digit);

// The curve as a polyline with `steps` pieces between neighbouring points.
std::vector<GlyphPoint> flatten(const GlyphStroke& stroke, int steps);

}  // namespace grapevine
