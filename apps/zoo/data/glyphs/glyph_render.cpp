#include "apps/zoo/data/glyphs/glyph_render.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "apps/zoo/data/glyphs/glyph_strokes.hpp"

namespace grapevine {
namespace {

constexpr int kCurveSteps = 5;
constexpr double kFar = 100.0;  // pixels; farther than any pen reaches
constexpr double kTau = 6.283185307179586;

using Field = std::array<float, kGlyphSide * kGlyphSide>;

double clipped_normal(RandomStream& random, double deviation) {
  return deviation * std::clamp(random.normal(), -2.2, 2.2);
}

// A hand's unsteadiness: a slow wave over the unit square plus a tremor of each control point.
class Wobble {
 public:
  explicit Wobble(RandomStream& random) : random_(random) {
    for (Wave& wave : waves_) {
      wave.amplitude = random.uniform(0, 0.06);
      wave.along_x = random.uniform(-0.8, 0.8);
      wave.along_y = random.uniform(-0.8, 0.8);
      wave.phase = random.uniform();
    }
  }

  GlyphPoint operator()(GlyphPoint p) {
    const auto shift = [&](const Wave& w) {
      return w.amplitude * std::sin(kTau * (w.along_x * p.x + w.along_y * p.y + w.phase));
    };
    return {p.x + shift(waves_[0]) + 0.012 * random_.normal(),
            p.y + shift(waves_[1]) + 0.012 * random_.normal()};
  }

 private:
  struct Wave {
    double amplitude, along_x, along_y, phase;
  };

  RandomStream& random_;
  std::array<Wave, 2> waves_{};  // sideways, downwards
};

// From the unit square to pixels: scale, slant, turn and move about the centre.
class Affine {
 public:
  explicit Affine(RandomStream& random) {
    const double width = random.uniform(12.0, 20.0);
    const double height = random.uniform(15.5, 22.0);
    const double slant = clipped_normal(random, 0.17);
    const double turn = clipped_normal(random, 0.14);
    const double cos = std::cos(turn);
    const double sin = std::sin(turn);
    xx_ = cos * width;
    xy_ = -cos * slant * height - sin * height;
    yx_ = sin * width;
    yy_ = cos * height - sin * slant * height;
    // Large digits have less room to move before they leave the image.
    const double room_x = std::max(0.5, (kGlyphSide - width) / 2 - 2.5);
    const double room_y = std::max(0.5, (kGlyphSide - height) / 2 - 2.0);
    move_x_ = (kGlyphSide - 1) / 2.0 + random.uniform(-room_x, room_x);
    move_y_ = (kGlyphSide - 1) / 2.0 + random.uniform(-room_y, room_y);
  }

  GlyphPoint operator()(GlyphPoint p) const {
    const double x = p.x - 0.5;
    const double y = p.y - 0.5;
    return {xx_ * x + xy_ * y + move_x_, yx_ * x + yy_ * y + move_y_};
  }

 private:
  double xx_, xy_, yx_, yy_, move_x_, move_y_;
};

double squared_distance(GlyphPoint p, GlyphPoint a, GlyphPoint b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length = dx * dx + dy * dy;
  const double along =
      length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0, 1.0) : 0.0;
  const double x = p.x - a.x - along * dx;
  const double y = p.y - a.y - along * dy;
  return x * x + y * y;
}

// Lowers the field to the squared distance from the segment, where the pen can reach at all.
void lower(Field& field, GlyphPoint a, GlyphPoint b, double reach) {
  const auto low = [&](double u, double v) {
    return std::max(0, static_cast<int>(std::floor(std::min(u, v) - reach)));
  };
  const auto high = [&](double u, double v) {
    return std::min(kGlyphSide - 1, static_cast<int>(std::ceil(std::max(u, v) + reach)));
  };
  for (int y = low(a.y, b.y); y <= high(a.y, b.y); ++y)
    for (int x = low(a.x, b.x); x <= high(a.x, b.x); ++x) {
      float& value = field[y * kGlyphSide + x];
      const GlyphPoint pixel{static_cast<double>(x), static_cast<double>(y)};
      value = std::min(value, static_cast<float>(squared_distance(pixel, a, b)));
    }
}

// Squared distance of each pixel's centre from the strokes, in pixels².
Field stroke_field(int digit, double reach, RandomStream& random) {
  const std::vector<GlyphStyle>& styles = glyph_styles(digit);
  const GlyphStyle& style = styles[random.below(static_cast<std::int64_t>(styles.size()))];
  Wobble wobble(random);
  const Affine affine(random);
  Field field;
  field.fill(static_cast<float>(kFar * kFar));
  for (const GlyphStroke& stroke : style) {
    GlyphStroke written;
    for (const GlyphPoint& point : stroke) written.push_back(affine(wobble(point)));
    // The tremor must not tear a ring open.
    const bool ring = stroke.front().x == stroke.back().x && stroke.front().y == stroke.back().y;
    if (ring) written.back() = written.front();
    const std::vector<GlyphPoint> line = flatten(written, kCurveSteps);
    for (std::size_t i = 0; i + 1 < line.size(); ++i) lower(field, line[i], line[i + 1], reach);
  }
  return field;
}

}  // namespace

void render_glyph(int digit, RandomStream& random, std::uint8_t* pixels) {
  const double pen = random.uniform(0.55, 1.5);  // half the stroke's width, pixels
  const double blur = random.uniform(0.8, 1.5);  // width of the soft edge, pixels
  const Field field = stroke_field(digit, pen + blur, random);
  const double ink = random.uniform(0.7, 1.0);
  const double ground = random.uniform(0.0, 0.2);
  const double tilt_x = clipped_normal(random, 0.05);  // of the ground's brightness, per image
  const double tilt_y = clipped_normal(random, 0.05);
  const double noise = random.uniform(0.02, 0.1);
  std::array<float, kGlyphSide * kGlyphSide> grain{};
  fill_normal(random.bits(), grain.data(), static_cast<std::int64_t>(grain.size()));
  for (int i = 0; i < kGlyphSide * kGlyphSide; ++i) {
    const double x = static_cast<double>(i % kGlyphSide) / (kGlyphSide - 1) - 0.5;
    const double y = static_cast<double>(i / kGlyphSide) / (kGlyphSide - 1) - 0.5;
    const double cover = std::clamp((pen - std::sqrt(field[i])) / blur + 0.5, 0.0, 1.0);
    const double behind = ground + tilt_x * x + tilt_y * y;
    const double value = behind + (ink - behind) * cover + noise * grain[i];
    pixels[i] = static_cast<std::uint8_t>(std::lround(255.0 * std::clamp(value, 0.0, 1.0)));
  }
}

}  // namespace grapevine
