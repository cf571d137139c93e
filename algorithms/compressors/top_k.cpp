// top-k: the k entries of largest magnitude, as u32 indices and f32 or f16 values. Biased; a
// contraction: the rest has at most (1 - k/d) of the squared norm, for each layer separately where
// the density is per layer.
#include "algorithms/compressors/sparse_compressor.hpp"

namespace grapevine {
namespace {

class TopK final : public SparseCompressor {
 public:
  using SparseCompressor::SparseCompressor;

  bool unbiased() const override { return false; }

 private:
  SparseVector select(const at::Tensor& x, std::int64_t k, Rng&) const override {
    return settings_.sampled ? select_about_k(x, k) : select_top_k(x, k);
  }
  std::int64_t most(std::int64_t k) const override { return settings_.sampled ? k + k / 2 : k; }
};

}  // namespace

std::unique_ptr<const Compressor> make_top_k(const CompressionSettings& settings) {
  return std::make_unique<TopK>(settings);
}

}  // namespace grapevine
