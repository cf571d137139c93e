// fp16, bf16: every number rounded to the nearest of 16 bits. Biased, by at most half a unit in the
// last place. Numbers beyond fp16's range become its largest (65504), so that error feedback can
// send the rest; below 6e-8 fp16 sends 0.
#include <string>
#include <utility>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/packed_error.hpp"

namespace grapevine {
namespace {

class Half final : public Compressor {
 public:
  explicit Half(at::ScalarType dtype) : dtype_(dtype) {}

  bool unbiased() const override { return false; }
  bool any_device() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return 2 * static_cast<std::uint64_t>(d);
  }
  Packed pack(const at::Tensor& x, double, Rng&) const override {
    at::Tensor values = kernels::half_pack(x, dtype_);
    return {{}, FrozenTensor::freeze(std::move(values)), {}};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    if (packed.indices.defined() || packed.scales.defined() ||
        !is_flat_tensor(packed.values, dtype_, x.numel(), x.device()))
      return bad_packed("it is not of " + std::to_string(x.numel()) + " 16 bit numbers");
    kernels::half_fold(x, packed.values.read(), factor);
    return {};
  }

 private:
  const at::ScalarType dtype_;
};

CompressorType half_type(const std::string& name, at::ScalarType dtype) {
  CompressorType half;
  half.name = name;
  half.make = [dtype](const CompressionSettings&) { return std::make_unique<Half>(dtype); };
  return half;
}

}  // namespace

const CompressorType& fp16_compressor() {
  static const CompressorType type = half_type("fp16", at::kHalf);
  return type;
}

const CompressorType& bf16_compressor() {
  static const CompressorType type = half_type("bf16", at::kBFloat16);
  return type;
}

}  // namespace grapevine
