// top-k: the k entries of largest magnitude, as u32 indices and f32 values. Biased; a contraction:
// what it leaves has at most (1 - k/d) of the squared norm.
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/sparse_vector.hpp"

namespace grapevine {
namespace {

class TopK final : public Compressor {
 public:
  TopK(DensitySchedule density, bool sampled) : density_(std::move(density)), sampled_(sampled) {}

  bool unbiased() const override { return false; }
  bool sparse() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double epoch) const override {
    const auto k = static_cast<std::uint64_t>(density_.entries(epoch, d));
    return 8 * (sampled_ ? k + k / 2 : k);
  }
  Packed pack(const at::Tensor& x, double epoch, Rng&) const override {
    const std::int64_t k = density_.entries(epoch, x.numel());
    return to_packed(sampled_ ? select_about_k(x, k) : select_top_k(x, k));
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    const Expected<SparseVector> entries = from_packed(packed, x.numel());
    if (!entries) return entries.error();
    add_entries(x, *entries, factor);
    return {};
  }

 private:
  const DensitySchedule density_;
  const bool sampled_;
};

}  // namespace

std::unique_ptr<const Compressor> make_top_k(const DensitySchedule& density, bool sampled) {
  return std::make_unique<TopK>(density, sampled);
}

}  // namespace grapevine
