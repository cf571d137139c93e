// Renders one digit as a person might have written it.
#pragma once
#include <cstdint>

#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {

constexpr int kGlyphSide = 28;  // pixels

// Draws `digit` (0 .. 9), bright ink on a dark ground, into pixels[kGlyphSide * kGlyphSide]. The
// style, the pen, the distortion, the ground and the noise come from `random` alone. Thread-safe.
void render_glyph(int digit, RandomStream& random, std::uint8_t* pixels);

}  // namespace grapevine
