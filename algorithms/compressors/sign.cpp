// sign: each block of kSignBlock numbers as the mean of |x| and one bit per number, set where x is
// negative; zeros count as positive. Biased; a contraction by 1 - (sum |x|)^2 / (n sum x^2).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/kernels/packed_error.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kSignBlock = 4096;  // a multiple of 8: no byte is in two blocks
constexpr std::int64_t kSignBlocksPerTask = 16;

std::int64_t blocks_of(std::int64_t d) { return (d + kSignBlock - 1) / kSignBlock; }
std::int64_t bytes_of(std::int64_t d) { return (d + 7) / 8; }

// Returns the block's scale.
float pack_signs(const float* x, std::uint8_t* out, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::int64_t byte = begin / 8; byte < bytes_of(end); ++byte) {
    unsigned bits = 0;
    for (std::int64_t i = byte * 8; i < std::min(end, byte * 8 + 8); ++i) {
      sum += std::fabs(static_cast<double>(x[i]));
      bits |= static_cast<unsigned>(x[i] < 0) << (i % 8);
    }
    out[byte] = static_cast<std::uint8_t>(bits);
  }
  return static_cast<float>(sum / static_cast<double>(end - begin));
}

class Sign final : public Compressor {
 public:
  bool unbiased() const override { return false; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return static_cast<std::uint64_t>(bytes_of(d) + 4 * blocks_of(d));
  }
  Packed pack(const at::Tensor& x, double, Rng&) const override {
    const std::int64_t d = x.numel();
    at::Tensor bits = at::empty({bytes_of(d)}, at::kByte);
    at::Tensor scales = at::empty({blocks_of(d)}, at::kFloat);
    const float* const from = x.data_ptr<float>();
    auto* const to = bits.data_ptr<std::uint8_t>();
    auto* const scale = scales.data_ptr<float>();
    at::parallel_for(
        0, blocks_of(d), kSignBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b)
            scale[b] = pack_signs(from, to, b * kSignBlock, std::min(d, (b + 1) * kSignBlock));
        });
    return {{}, FrozenTensor::freeze(std::move(bits)), FrozenTensor::freeze(std::move(scales))};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    const std::int64_t d = x.numel();
    if (packed.indices.defined() || !is_flat_tensor(packed.values, at::kByte, bytes_of(d)) ||
        !is_flat_tensor(packed.scales, at::kFloat, blocks_of(d)))
      return bad_packed("it is not of " + std::to_string(d) + " signs and their scales");
    const auto* const bits = packed.values.data<std::uint8_t>();
    const auto* const scales = packed.scales.data<float>();
    float* const to = x.data_ptr<float>();
    at::parallel_for(
        0, blocks_of(d), kSignBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) {
            const float step = factor * scales[b];
            for (std::int64_t i = b * kSignBlock; i < std::min(d, (b + 1) * kSignBlock); ++i)
              to[i] += ((bits[i / 8] >> (i % 8)) & 1) != 0 ? -step : step;
          }
        });
    return {};
  }
};

}  // namespace

const CompressorType& sign_compressor() {
  static const CompressorType type = [] {
    CompressorType sign;
    sign.name = "sign";
    sign.make = [](const CompressionSettings&) { return std::make_unique<Sign>(); };
    sign.consensus_step = [](const CompressionSettings&) { return 0.5; };
    return sign;
  }();
  return type;
}

}  // namespace grapevine
