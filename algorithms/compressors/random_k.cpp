// random-k: one entry, drawn evenly, of each of k equal stretches of the vector, as u32 indices and
// f32 values. Stretches instead of k draws from all d: no index comes twice and they are in order.
//
// Scaled: each value times the length of its stretch (about d/k): unbiased. Unscaled: biased, and a
// contraction in expectation by 1 - k/d, as error feedback needs it.
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/sparse_vector.hpp"

namespace grapevine {
namespace {

class RandomK final : public Compressor {
 public:
  RandomK(DensitySchedule density, bool scaled) : density_(std::move(density)), scaled_(scaled) {}

  bool unbiased() const override { return scaled_; }
  bool sparse() const override { return true; }
  std::uint64_t bytes(std::int64_t d, double epoch) const override {
    return 8 * static_cast<std::uint64_t>(density_.entries(epoch, d));
  }
  Packed pack(const at::Tensor& x, double epoch, Rng& rng) const override {
    const std::int64_t d = x.numel(), k = density_.entries(epoch, d);
    const float* const values = x.data_ptr<float>();
    SparseVector chosen;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t begin = d * i / k, length = d * (i + 1) / k - begin;
      const auto index =
          begin + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(length));
      chosen.add(static_cast<std::uint32_t>(index),
                 values[index] * (scaled_ ? static_cast<float>(length) : 1.0F));
    }
    return to_packed(chosen);
  }
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const override {
    const Expected<SparseVector> entries = from_packed(packed, x.numel());
    if (!entries) return entries.error();
    add_entries(x, *entries, factor);
    return {};
  }

 private:
  const DensitySchedule density_;
  const bool scaled_;
};

}  // namespace

std::unique_ptr<const Compressor> make_random_k(const DensitySchedule& density, bool scaled) {
  return std::make_unique<RandomK>(density, scaled);
}

}  // namespace grapevine
