// random-k: one entry, drawn evenly, of each of k equal stretches of the vector or layer, as u32
// indices and f32 or f16 values. Stretches instead of k draws from all: no index is drawn twice,
// and they ascend.
//
// Without error feedback each value is scaled by the length of its stretch (about d/k): unbiased,
// but for the rounding of f16. With it unscaled: biased, and a contraction in expectation by
// 1 - k/d, as error feedback needs it.
#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/compressors/sparse_compressor.hpp"

namespace grapevine {
namespace {

class RandomK final : public SparseCompressor {
 public:
  using SparseCompressor::SparseCompressor;

  bool unbiased() const override {
    return !settings_.error_feedback && settings_.value_type == ValueType::f32;
  }

 private:
  SparseVector select(const at::Tensor& x, std::int64_t k, Rng& rng) const override {
    const std::int64_t d = x.numel();
    const float* const values = x.data_ptr<float>();
    SparseVector chosen;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t begin = d * i / k, length = d * (i + 1) / k - begin;
      const auto index =
          begin + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(length));
      chosen.add(static_cast<std::uint32_t>(index),
                 values[index] * (settings_.error_feedback ? 1.0F : static_cast<float>(length)));
    }
    return chosen;
  }
};

}  // namespace

const CompressorType& random_k_compressor() {
  static const CompressorType type = [] {
    CompressorType random_k;
    random_k.name = "random-k";
    random_k.sparse = true;
    random_k.make = [](const CompressionSettings& c) { return std::make_unique<RandomK>(c); };
    random_k.consensus_step = [](const CompressionSettings& c) { return c.density.base(); };
    return random_k;
  }();
  return type;
}

}  // namespace grapevine
