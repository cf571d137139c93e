// SparseCompressor: base of the compressors that send single entries: a density, by layer or for
// all parameters together, and lists of u32 indices with f32 or f16 values.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/kernels/sparse_vector.hpp"

namespace grapevine {

// Entries that a vector of d keeps at `epoch`, for each layer: max(floor(density * size), 1) of
// each, or of all d where the settings do not go by layer.
// REQUIRES: settings.layers, where there are any, add up to d.
std::vector<LayerQuota> layer_quotas(const CompressionSettings& settings, double epoch,
                                     std::int64_t d);

// The settings for elements [begin, begin + size) of the vector: with the layers that lie there.
CompressionSettings settings_of_slice(CompressionSettings settings, std::int64_t begin,
                                      std::int64_t size);

// The rounding error of f16 is left over, like all values that are not sent. An entry that rounds
// to 0 is not sent at all, so that it does not count as sent.
class SparseCompressor : public Compressor {
 public:
  explicit SparseCompressor(const CompressionSettings& settings) : settings_(settings) {}

  bool sparse() const final { return true; }
  std::uint64_t bytes(std::int64_t d, double epoch) const final;
  Packed pack(const at::Tensor& x, double epoch, Rng& rng) const final;
  Expected<void> fold(at::Tensor& x, const Packed& packed, float factor) const final;

 protected:
  const CompressionSettings settings_;

 private:
  static Packed pack_on_device(const at::Tensor& x, std::int64_t k);
  static Expected<void> fold_on_device(at::Tensor& x, const Packed& packed, float factor);

  // About k entries of one layer x, with the values to send.
  virtual SparseVector select(const at::Tensor& x, std::int64_t k, Rng& rng) const = 0;
  // How many these are at most.
  virtual std::int64_t most(std::int64_t k) const { return k; }
};

}  // namespace grapevine
