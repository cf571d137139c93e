// int8: each block of kBlock numbers as a scale s = max|x| / 127 and a signed byte per number,
// x/s rounded up or down at random so that its expectation is x/s. Unbiased; a contraction once
// error feedback is around it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/compressors/packed_error.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::int64_t kBlocksPerTask = 64;
constexpr float kMost = 127;

std::int64_t blocks_of(std::int64_t d) { return (d + kBlock - 1) / kBlock; }

// Even in [0, 1) with 24 bits, a function of the seed and the element alone.
float uniform(std::uint64_t seed, std::int64_t i) {
  return static_cast<float>(mix_seed(seed, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24F;
}

// Returns the block's scale; NaN where the block is not finite.
float pack_block(const float* x, std::uint8_t* out, std::int64_t begin, std::int64_t end,
                 std::uint64_t seed) {
  float most = 0;
  bool finite = true;
  for (std::int64_t i = begin; i < end; ++i) {
    most = std::max(most, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float scale = most / kMost;
  const float inverse = 1 / scale;  // infinite where all is nearly zero: nothing is sent
  for (std::int64_t i = begin; i < end; ++i) {
    float level = 0;
    if (finite && std::isfinite(inverse)) level = std::floor(x[i] * inverse + uniform(seed, i));
    const auto byte = static_cast<std::int8_t>(std::clamp(level, -kMost, kMost));
    out[i] = static_cast<std::uint8_t>(byte);
  }
  return finite ? scale : std::numeric_limits<float>::quiet_NaN();
}

class Int8 final : public Compressor {
 public:
  bool unbiased() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return static_cast<std::uint64_t>(d + 4 * blocks_of(d));
  }
  Packed pack(const at::Tensor& x, double, Rng& rng) const override {
    const std::int64_t d = x.numel();
    at::Tensor values = at::empty({d}, at::kByte), scales = at::empty({blocks_of(d)}, at::kFloat);
    const float* const from = x.data_ptr<float>();
    auto* const to = values.data_ptr<std::uint8_t>();
    auto* const scale = scales.data_ptr<float>();
    const std::uint64_t seed = rng();
    at::parallel_for(0, blocks_of(d), kBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        scale[b] = pack_block(from, to, b * kBlock, std::min(d, (b + 1) * kBlock), seed);
    });
    return {{}, FrozenTensor::freeze(std::move(values)), FrozenTensor::freeze(std::move(scales))};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    const std::int64_t d = x.numel();
    if (packed.indices.defined() || !is_flat_tensor(packed.values, at::kByte, d) ||
        !is_flat_tensor(packed.scales, at::kFloat, blocks_of(d)))
      return bad_packed("it is not of " + std::to_string(d) + " bytes and their scales");
    const auto* const values = packed.values.data<std::uint8_t>();
    const auto* const scales = packed.scales.data<float>();
    float* const to = x.data_ptr<float>();
    at::parallel_for(0, blocks_of(d), kBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b)
        for (std::int64_t i = b * kBlock; i < std::min(d, (b + 1) * kBlock); ++i)
          to[i] += factor * (static_cast<float>(static_cast<std::int8_t>(values[i])) * scales[b]);
    });
    return {};
  }
};

}  // namespace

std::unique_ptr<const Compressor> make_int8() { return std::make_unique<Int8>(); }

}  // namespace grapevine
