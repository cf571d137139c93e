#include "apps/zoo/data/random_stream.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace grapevine {
namespace {

constexpr int kZigguratLayers = 128;
constexpr double kTailStart = 3.442619855899;       // r of the paper for 128 layers
constexpr double kLayerArea = 9.91256303526217e-3;  // v of the paper

struct Ziggurat {
  std::array<double, kZigguratLayers + 1>
      edge;  // right edge of layer i, falling; the base is stretched
  std::array<float, kZigguratLayers>
      accept;  // |u| below this lies inside layer i + 1: no test needed
  std::array<float, kZigguratLayers> width;  // edge as float, the fast path's factor

  Ziggurat() {
    const auto density = [](double x) { return std::exp(-0.5 * x * x); };
    edge[0] = kLayerArea / density(kTailStart);
    edge[1] = kTailStart;
    for (int i = 2; i < kZigguratLayers; ++i)
      edge[i] = std::sqrt(-2.0 * std::log(kLayerArea / edge[i - 1] + density(edge[i - 1])));
    edge[kZigguratLayers] = 0.0;
    for (int i = 0; i < kZigguratLayers; ++i) {
      accept[i] = static_cast<float>(edge[i + 1] / edge[i]);
      width[i] = static_cast<float>(edge[i]);
    }
  }
};

const Ziggurat& ziggurat() {
  static const Ziggurat tables;
  return tables;
}

// Beyond kTailStart; the paper's exponential rejection.
double tail(RandomStream& stream) {
  while (true) {
    const double x = -std::log(1.0 - stream.uniform()) / kTailStart;
    const double y = -std::log(1.0 - stream.uniform());
    if (2.0 * y > x * x) return kTailStart + x;
  }
}

// One normal from the candidate (layer, u) with u in (-1, 1); further candidates come from
// `stream`.
double settle(const Ziggurat& tables, int layer, double u, RandomStream& stream) {
  while (true) {
    if (std::abs(u) < tables.accept[layer]) return u * tables.edge[layer];
    if (layer == 0) return std::copysign(tail(stream), u);
    const double x = u * tables.edge[layer];
    const double low = std::exp(-0.5 * (tables.edge[layer] * tables.edge[layer] - x * x));
    const double high = std::exp(-0.5 * (tables.edge[layer + 1] * tables.edge[layer + 1] - x * x));
    if (low + stream.uniform() * (high - low) < 1.0) return x;
    layer = static_cast<int>(stream.below(kZigguratLayers));
    u = stream.uniform(-1.0, 1.0);
  }
}

}  // namespace

double RandomStream::normal() {
  const int layer = static_cast<int>(below(kZigguratLayers));
  const double u = uniform(-1.0, 1.0);
  return settle(ziggurat(), layer, u, *this);
}

void fill_normal(std::uint64_t key, float* out, std::int64_t n) {
  const Ziggurat& tables = ziggurat();
  for (std::int64_t first = 0; first < n; first += 2) {
    std::uint64_t both = mix_seed(key, static_cast<std::uint64_t>(first / 2));
    const std::int64_t end = std::min(n, first + 2);
    for (std::int64_t i = first; i < end; ++i, both = both >> 32 | both << 32) {
      const auto word = static_cast<std::uint32_t>(both);
      const int layer = static_cast<int>(word % kZigguratLayers);
      // The upper 24 bits, centred: exact in a float, symmetric around 0 and never ±1.
      const std::int32_t centred = static_cast<std::int32_t>(word >> 8) - (1 << 23);
      const float u = (static_cast<float>(centred) + 0.5F) * 0x1p-23F;
      if (std::abs(u) < tables.accept[layer]) {
        out[i] = u * tables.width[layer];
      } else {
        RandomStream retry(mix_seed(both, static_cast<std::uint64_t>(i)));
        out[i] = static_cast<float>(settle(tables, layer, u, retry));
      }
    }
  }
}

}  // namespace grapevine
