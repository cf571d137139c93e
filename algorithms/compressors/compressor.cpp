#include "algorithms/compressors/compressor.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "algorithms/kernels/packed_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// none: the vector itself.
class Plain final : public Compressor {
 public:
  bool unbiased() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double) const override {
    return 4 * static_cast<std::uint64_t>(d);
  }
  Packed pack(const at::Tensor& x, double, Rng&) const override {
    return {{}, FrozenTensor::copy_of(x), {}};
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    if (packed.indices.defined() || packed.scales.defined() ||
        !is_flat_tensor(packed.values, at::kFloat, x.numel()))
      return bad_packed("it is not of " + std::to_string(x.numel()) + " numbers");
    x.add_(packed.values.read(), factor);
    return {};
  }
};

}  // namespace

Expected<void> Compressor::check(const Packed& packed, std::int64_t d) const {
  at::Tensor scratch = at::zeros({d}, at::kFloat);
  return fold(scratch, packed, 1);
}

std::unique_ptr<const Compressor> make_compressor(const CompressionSettings& settings) {
  if (settings.name == "none") return std::make_unique<Plain>();
  if (settings.name == "top-k") return make_top_k(settings);
  if (settings.name == "random-k") return make_random_k(settings);
  if (settings.name == "fp16") return make_half(at::kHalf);
  if (settings.name == "bf16") return make_half(at::kBFloat16);
  if (settings.name == "int8") return make_int8();
  if (settings.name == "sign") return make_sign();
  GRAPEVINE_CHECK(false, "an unknown compressor: ", settings.name);
}

bool is_sparse(const CompressionSettings& settings) { return make_compressor(settings)->sparse(); }

bool keeps_magnitudes(const CompressionSettings& settings) {
  constexpr std::int64_t kNumbers = 1 << 20;
  return make_compressor(settings)->bytes(kNumbers, 0) >= static_cast<std::uint64_t>(kNumbers);
}

const std::vector<std::string>& compressor_names() {
  static const std::vector<std::string> names = {"none", "top-k", "random-k", "fp16",
                                                 "bf16", "int8",  "sign"};
  return names;
}

double default_consensus_step(const CompressionSettings& settings) {
  if (settings.name == "top-k") return std::min(1.0, 2 * settings.density.base());
  if (settings.name == "random-k") return settings.density.base();
  return settings.name == "sign" ? 0.5 : 1;
}

}  // namespace grapevine
