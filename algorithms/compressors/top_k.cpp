// top-k: the k entries of largest magnitude, as u32 indices and f32 or f16 values. Biased; a
// contraction: the rest has at most (1 - k/d) of the squared norm, for each layer separately where
// the density is per layer.
#include <algorithm>

#include "algorithms/compressors/compressor_type.hpp"
#include "algorithms/compressors/sparse_compressor.hpp"

namespace grapevine {
namespace {

class TopK final : public SparseCompressor {
 public:
  using SparseCompressor::SparseCompressor;

  bool unbiased() const override { return false; }
  // Exactly k entries of one vector, as they are.
  bool any_device() const override {
    const bool one_layer = !settings_.per_layer || settings_.layers.empty();
    return one_layer && !settings_.sampled && settings_.value_type == ValueType::f32;
  }

 private:
  SparseVector select(const at::Tensor& x, std::int64_t k, Rng&) const override {
    return settings_.sampled ? select_about_k(x, k) : select_top_k(x, k);
  }
  std::int64_t most(std::int64_t k) const override { return settings_.sampled ? k + k / 2 : k; }
};

}  // namespace

// Twice the density: at 0.1 and 0.01 of the entries gossip on a ring of 8 is stable up to about 0.3
// and 0.05.
const CompressorType& top_k_compressor() {
  static const CompressorType type = [] {
    CompressorType top_k;
    top_k.name = "top-k";
    top_k.sparse = true;
    top_k.read = [](KeyReader& keys, CompressionSettings& c) {
      c.sampled =
          keys.choice<bool>("selection", "exact", {{"exact", false}, {"sampled", true}},
                            "exactly k entries, or k/2 to 3k/2 by a threshold from a sample");
    };
    top_k.make = [](const CompressionSettings& c) { return std::make_unique<TopK>(c); };
    top_k.consensus_step = [](const CompressionSettings& c) {
      return std::min(1.0, 2 * c.density.base());
    };
    return top_k;
  }();
  return type;
}

}  // namespace grapevine
