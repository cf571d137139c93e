#include "algorithms/compressors/sparse_compressor.hpp"

#include <algorithm>
#include <utility>

#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/packed_error.hpp"
#include "messages/check.hpp"

namespace grapevine {

std::vector<LayerQuota> layer_quotas(const CompressionSettings& settings, double epoch,
                                     std::int64_t d) {
  if (!settings.per_layer || settings.layers.empty())
    return {{d, settings.density.entries(epoch, d)}};
  std::vector<LayerQuota> quotas;
  std::int64_t end = 0;
  for (const std::int64_t size : settings.layers)
    quotas.push_back({end += size, settings.density.entries(epoch, size)});
  GRAPEVINE_CHECK(end == d, "layers of ", end, " parameters in a vector of ", d);
  return quotas;
}

CompressionSettings settings_of_slice(CompressionSettings settings, std::int64_t begin,
                                      std::int64_t size) {
  std::vector<std::int64_t> cut;
  std::int64_t layer_begin = 0;
  for (const std::int64_t layer : settings.layers) {
    const std::int64_t from = std::max(begin, layer_begin);
    const std::int64_t to = std::min(begin + size, layer_begin += layer);
    if (to > from) cut.push_back(to - from);
  }
  settings.layers = std::move(cut);
  return settings;
}

std::uint64_t SparseCompressor::bytes(std::int64_t d, double epoch) const {
  std::int64_t entries = 0;
  for (const LayerQuota& quota : layer_quotas(settings_, epoch, d)) entries += most(quota.k);
  const std::uint64_t of_entry = settings_.value_type == ValueType::f16 ? 6 : 8;
  return of_entry * static_cast<std::uint64_t>(entries);
}

Packed SparseCompressor::pack(const at::Tensor& x, double epoch, Rng& rng) const {
  if (!x.is_cpu()) {
    GRAPEVINE_CHECK(any_device(), "a compressor that works in the host's memory, on ", x.device());
    return pack_on_device(x, layer_quotas(settings_, epoch, x.numel()).front().k);
  }
  SparseVector chosen;
  std::int64_t begin = 0;
  for (const LayerQuota& quota : layer_quotas(settings_, epoch, x.numel())) {
    SparseVector layer = select(x.narrow(0, begin, quota.end - begin), quota.k, rng);
    if (begin == 0)
      chosen = std::move(layer);
    else
      chosen.append(layer, static_cast<std::uint32_t>(begin));
    begin = quota.end;
  }
  return to_packed(without_zeros(std::move(chosen), settings_.value_type), settings_.value_type);
}

Packed SparseCompressor::pack_on_device(const at::Tensor& x, std::int64_t k) {
  at::Tensor same = x;
  const kernels::Entries chosen = kernels::take_top_k(same, k, /*take=*/false);
  return {FrozenTensor::copy_of(chosen.indices), FrozenTensor::copy_of(chosen.values), {}};
}

// Only the host could read the indices: they are as take_top_k() made them.
Expected<void> SparseCompressor::fold_on_device(at::Tensor& x, const Packed& packed, float factor) {
  const std::int64_t k = packed.indices.numel();
  if (packed.scales.defined() || k > x.numel() ||
      !is_flat_tensor(packed.indices, at::kInt, k, x.device()) ||
      !is_flat_tensor(packed.values, at::kFloat, k, x.device()))
    return bad_packed("it is no list of entries");
  kernels::scatter_add(x, {packed.indices.read(), packed.values.read()}, factor);
  return {};
}

Expected<void> SparseCompressor::fold(at::Tensor& x, const Packed& packed, float factor) const {
  if (!x.is_cpu()) return fold_on_device(x, packed, factor);
  const Expected<SparseVector> entries = from_packed(packed, x.numel());
  if (!entries) return entries.error();
  add_entries(x, *entries, factor);
  return {};
}

}  // namespace grapevine
