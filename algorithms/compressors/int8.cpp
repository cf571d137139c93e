// int8: each block of kernels::kInt8Block numbers as a scale s = max|x| / 127 and a signed byte per
// number, x/s rounded up or down at random so that its expectation is x/s. Unbiased; a contraction
// once error feedback is around it.
#include <string>
#include <utility>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/packed_error.hpp"

namespace grapevine {
namespace {

class Int8 final : public Compressor {
 public:
  bool unbiased() const override { return true; }
  bool any_device() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return static_cast<std::uint64_t>(d + 4 * kernels::int8_blocks(d));
  }
  Packed pack(const at::Tensor& x, double, Rng& rng) const override {
    kernels::Levels levels = kernels::int8_pack(x, rng());
    return {{},
            FrozenTensor::freeze(std::move(levels.values)),
            FrozenTensor::freeze(std::move(levels.scales))};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    const std::int64_t d = x.numel();
    if (packed.indices.defined() || !is_flat_tensor(packed.values, at::kByte, d, x.device()) ||
        !is_flat_tensor(packed.scales, at::kFloat, kernels::int8_blocks(d), x.device()))
      return bad_packed("it is not of " + std::to_string(d) + " bytes and their scales");
    kernels::int8_fold(x, {packed.values.read(), packed.scales.read()}, factor);
    return {};
  }
};

}  // namespace

const CompressorType& int8_compressor() {
  static const CompressorType type = [] {
    CompressorType int8;
    int8.name = "int8";
    int8.make = [](const CompressionSettings&) { return std::make_unique<Int8>(); };
    return int8;
  }();
  return type;
}

}  // namespace grapevine
