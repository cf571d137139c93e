#include "algorithms/kernels/sparse_vector.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "algorithms/kernels/packed_error.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

// Magnitudes as integers: the order of |value|, NaNs last. They fit into an int32, which baseline
// vector units compare.
constexpr std::uint32_t kMagnitudeMask = 0x7fffffff;
constexpr std::int64_t kSamples = std::int64_t{1} << 15;
// Elements of one task: fixed, so that candidates come out in one order with any number of threads.
constexpr std::int64_t kTask = std::int64_t{1} << 18;
// Elements that are compared as one block before the hit in it is located.
constexpr std::int64_t kBlock = 32;

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

std::uint32_t magnitude(float value) { return bits_of(value) & kMagnitudeMask; }

const float* flat_data(const at::Tensor& x) {
  GRAPEVINE_CHECK(x.defined() && x.dim() == 1 && x.scalar_type() == at::kFloat &&
                      x.is_contiguous() && x.device().is_cpu() &&
                      x.numel() <= std::int64_t{0xffffffff},
                  "x must be a flat contiguous float32 tensor on the CPU");
  return x.data_ptr<float>();
}

// The magnitude above which about `wanted` of the d elements lie; at least 1. Positions are a fixed
// pseudo-random sequence: neighbours in a model are of one size.
std::uint32_t sampled_threshold(const float* x, std::int64_t d, double wanted) {
  std::vector<std::uint32_t> sample(static_cast<std::size_t>(kSamples));
  for (std::size_t i = 0; i < sample.size(); ++i)
    sample[i] = magnitude(x[mix_seed(0, i) % static_cast<std::uint64_t>(d)]);
  const auto rank = static_cast<std::size_t>(wanted / static_cast<double>(d) * kSamples);
  if (rank >= sample.size()) return 1;
  const auto nth = sample.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sample.begin(), nth, sample.end(), std::greater<>());
  return std::max<std::uint32_t>(*nth, 1);
}

// A little below: the k-th magnitude of a sample is off by about its square root.
double with_margin(std::int64_t k, std::int64_t d) {
  const double in_sample =
      static_cast<double>(k) / static_cast<double>(d) * static_cast<double>(kSamples);
  return (in_sample + 4 * std::sqrt(in_sample) + 8) * static_cast<double>(d) / kSamples;
}

// The smallest magnitude, to 15 bits, such that at least k elements are not below it; at least 1.
std::uint32_t counted_threshold(const float* x, std::int64_t d, std::int64_t k) {
  constexpr int kShift = 16;
  std::vector<std::int64_t> count(std::size_t{1} << 15);
  for (std::int64_t i = 0; i < d; ++i) ++count[magnitude(x[i]) >> kShift];
  std::int64_t above = 0;
  for (std::size_t bucket = count.size(); bucket-- > 0;) {
    above += count[bucket];
    if (above >= k) return std::max<std::uint32_t>(static_cast<std::uint32_t>(bucket) << kShift, 1);
  }
  return 1;
}

// Entries of x[begin, end) whose magnitude is not below `floor`.
void collect_task(const float* x, std::int64_t begin, std::int64_t end, std::uint32_t floor,
                  SparseVector& out) {
  const auto add_from = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i)
      if (magnitude(x[i]) >= floor) out.add(static_cast<std::uint32_t>(i), x[i]);
  };
  const auto limit = static_cast<std::int32_t>(floor);
  std::int64_t i = begin;
  for (; i + kBlock <= end; i += kBlock) {
    std::array<std::int32_t, kBlock> bits;
    std::memcpy(bits.data(), x + i, sizeof bits);
    std::int32_t hits = 0;
    for (std::size_t j = 0; j < bits.size(); ++j)
      hits |= static_cast<std::int32_t>((bits[j] & 0x7fffffff) >= limit);
    if (hits != 0) add_from(i, i + kBlock);
  }
  add_from(i, end);
}

SparseVector collect(const float* x, std::int64_t d, std::uint32_t floor) {
  const std::int64_t tasks = (d + kTask - 1) / kTask;
  std::vector<SparseVector> found(static_cast<std::size_t>(tasks));
  at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task)
      collect_task(x, task * kTask, std::min(d, (task + 1) * kTask), floor,
                   found[static_cast<std::size_t>(task)]);
  });
  if (found.size() == 1) return std::move(found.front());
  SparseVector all;
  std::size_t size = 0;
  for (const SparseVector& part : found) size += part.indices.size();
  all.indices.reserve(size);
  all.values.reserve(size);
  for (const SparseVector& part : found) all.append(part);
  return all;
}

struct Candidates {
  SparseVector entries;
  bool estimated = false;  // by the sample alone
};

// At least k entries, unless fewer are not zero.
Candidates candidates(const float* x, std::int64_t d, std::int64_t k, double wanted) {
  if (d <= kSamples) return {collect(x, d, 1), false};
  const std::uint32_t guess = sampled_threshold(x, d, wanted);
  SparseVector found = collect(x, d, guess);
  if (found.size() >= k || guess == 1) return {std::move(found), true};
  return {collect(x, d, counted_threshold(x, d, k)), false};
}

// The nearest number that 16 bits hold; the largest one for finite values beyond their range.
c10::Half to_half(float value) {
  constexpr float kLargest = 65504;
  return {std::isfinite(value) ? std::clamp(value, -kLargest, kLargest) : value};
}

}  // namespace

void SparseVector::append(const SparseVector& more, std::uint32_t offset) {
  for (const std::uint32_t index : more.indices) indices.push_back(index + offset);
  values.insert(values.end(), more.values.begin(), more.values.end());
}

SparseVector select_top_k(const at::Tensor& x, std::int64_t k) {
  const float* const data = flat_data(x);
  GRAPEVINE_CHECK(k >= 0, "select_top_k of ", k);
  if (k == 0 || x.numel() == 0) return {};
  return keep_top_k(candidates(data, x.numel(), k, with_margin(k, x.numel())).entries, k, nullptr);
}

SparseVector select_about_k(const at::Tensor& x, std::int64_t k) {
  const float* const data = flat_data(x);
  GRAPEVINE_CHECK(k >= 0, "select_about_k of ", k);
  if (k == 0 || x.numel() == 0) return {};
  const std::int64_t least = k - k / 2, most = k + k / 2;
  Candidates found = candidates(data, x.numel(), least, static_cast<double>(k));
  const std::int64_t size = found.entries.size();
  if (found.estimated && size >= least && size <= most) return std::move(found.entries);
  return select_top_k(x, k);
}

SparseVector keep_top_k(SparseVector x, std::int64_t k, SparseVector* rejected) {
  if (rejected != nullptr) *rejected = SparseVector();
  if (x.size() <= k) return x;
  if (k == 0) {
    if (rejected != nullptr) *rejected = std::move(x);
    return {};
  }
  std::vector<std::uint32_t> sizes;
  sizes.reserve(x.values.size());
  for (const float value : x.values) sizes.push_back(magnitude(value));
  const auto nth = sizes.begin() + (k - 1);
  std::nth_element(sizes.begin(), nth, sizes.end(), std::greater<>());
  const std::uint32_t least = *nth;
  // Those before the nth are not smaller; those after it not larger.
  std::int64_t ties =
      k - std::count_if(sizes.begin(), nth, [&](std::uint32_t s) { return s > least; });

  SparseVector kept;
  kept.indices.reserve(static_cast<std::size_t>(k));
  kept.values.reserve(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < x.indices.size(); ++i) {
    const std::uint32_t size = magnitude(x.values[i]);
    if (size > least || (size == least && ties-- > 0))
      kept.add(x.indices[i], x.values[i]);
    else if (rejected != nullptr)
      rejected->add(x.indices[i], x.values[i]);
  }
  return kept;
}

SparseVector keep_top_k(SparseVector x, const std::vector<LayerQuota>& quotas,
                        SparseVector* rejected) {
  if (quotas.size() == 1) return keep_top_k(std::move(x), quotas.front().k, rejected);
  SparseVector kept, dropped;
  std::size_t from = 0;
  for (const LayerQuota& quota : quotas) {
    SparseVector layer, rest;
    for (; from < x.indices.size() && x.indices[from] < quota.end; ++from)
      layer.add(x.indices[from], x.values[from]);
    kept.append(keep_top_k(std::move(layer), quota.k, &rest));
    dropped.append(rest);
  }
  if (rejected != nullptr) *rejected = std::move(dropped);
  return kept;
}

SparseVector merge(const SparseVector& a, const SparseVector& b) {
  SparseVector sum;
  sum.indices.resize(a.indices.size() + b.indices.size());
  sum.values.resize(sum.indices.size());
  std::size_t i = 0, j = 0, n = 0;
  while (i < a.indices.size() && j < b.indices.size()) {
    const std::uint32_t at_a = a.indices[i], at_b = b.indices[j];
    sum.indices[n] = std::min(at_a, at_b);
    // Without a branch: which list is next cannot be predicted.
    const bool from_a = at_a <= at_b, from_b = at_b <= at_a;
    sum.values[n] = from_a && from_b ? a.values[i] + b.values[j]
                    : from_a         ? a.values[i]
                                     : b.values[j];
    i += from_a;
    j += from_b;
    ++n;
  }
  const auto append = [&](const SparseVector& rest, std::size_t from) {
    const std::size_t count = rest.indices.size() - from;
    std::copy_n(rest.indices.data() + from, count, sum.indices.data() + n);
    std::copy_n(rest.values.data() + from, count, sum.values.data() + n);
    n += count;
  };
  append(a, i);
  append(b, j);
  sum.indices.resize(n);
  sum.values.resize(n);
  return sum;
}

SparseVector merge_all(std::vector<SparseVector> lists) {
  GRAPEVINE_CHECK(!lists.empty(), "a sum of no vectors");
  while (lists.size() > 1) {
    std::vector<SparseVector> sums;
    for (std::size_t i = 0; i + 1 < lists.size(); i += 2)
      sums.push_back(merge(lists[i], lists[i + 1]));
    if (lists.size() % 2 == 1) sums.push_back(std::move(lists.back()));
    lists = std::move(sums);
  }
  return std::move(lists.front());
}

SparseVector intersect(const SparseVector& a, const SparseVector& b, bool common) {
  SparseVector out;
  std::size_t j = 0;
  for (std::size_t i = 0; i < a.indices.size(); ++i) {
    while (j < b.indices.size() && b.indices[j] < a.indices[i]) ++j;
    const bool found = j < b.indices.size() && b.indices[j] == a.indices[i];
    if (found == common) out.add(a.indices[i], a.values[i]);
  }
  return out;
}

void add_entries(at::Tensor& x, const SparseVector& entries, float factor) {
  flat_data(x);
  float* const to = x.data_ptr<float>();
  GRAPEVINE_CHECK(entries.indices.empty() || entries.indices.back() < x.numel(), "index ",
                  entries.indices.back(), " of ", x.numel());
  for (std::size_t i = 0; i < entries.indices.size(); ++i)
    to[entries.indices[i]] += factor * entries.values[i];
}

void clear_entries(at::Tensor& x, const SparseVector& entries) {
  flat_data(x);
  float* const to = x.data_ptr<float>();
  GRAPEVINE_CHECK(entries.indices.empty() || entries.indices.back() < x.numel(), "index ",
                  entries.indices.back(), " of ", x.numel());
  for (const std::uint32_t index : entries.indices) to[index] = 0;
}

SparseVector round_values(SparseVector& x, ValueType type) {
  SparseVector lost;
  if (type == ValueType::f32) return lost;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const float rounded = static_cast<float>(to_half(x.values[i]));
    if (std::isfinite(rounded) && rounded != x.values[i])
      lost.add(x.indices[i], x.values[i] - rounded);
    x.values[i] = rounded;
  }
  return lost;
}

SparseVector without_zeros(SparseVector x, ValueType type) {
  const auto is_zero = [type](float value) {
    return (type == ValueType::f16 ? static_cast<float>(to_half(value)) : value) == 0;
  };
  if (std::none_of(x.values.begin(), x.values.end(), is_zero)) return x;
  SparseVector kept;
  for (std::size_t i = 0; i < x.values.size(); ++i)
    if (!is_zero(x.values[i])) kept.add(x.indices[i], x.values[i]);
  return kept;
}

Packed to_packed(const SparseVector& x, ValueType type) {
  const bool half = type == ValueType::f16;
  at::Tensor indices = at::empty({x.size()}, at::kInt);
  at::Tensor values = at::empty({x.size()}, half ? at::kHalf : at::kFloat);
  if (x.size() > 0) std::memcpy(indices.data_ptr(), x.indices.data(), indices.nbytes());
  if (half)
    std::transform(x.values.begin(), x.values.end(), values.data_ptr<c10::Half>(), to_half);
  else if (x.size() > 0)
    std::memcpy(values.data_ptr(), x.values.data(), values.nbytes());
  return {FrozenTensor::freeze(std::move(indices)), FrozenTensor::freeze(std::move(values)), {}};
}

Expected<SparseVector> from_packed(const Packed& packed, std::int64_t d) {
  const auto is_list = [](const FrozenTensor& t, at::ScalarType dtype) {
    return t.defined() && t.dtype() == dtype && t.sizes().size() == 1 && t.device().is_cpu();
  };
  const bool half = is_list(packed.values, at::kHalf);
  if (!is_list(packed.indices, at::kInt) || !(half || is_list(packed.values, at::kFloat)) ||
      packed.scales.defined() || packed.indices.numel() != packed.values.numel())
    return bad_packed("it is no list of indices and values");
  SparseVector x;
  const std::size_t n = static_cast<std::size_t>(packed.indices.numel());
  x.indices.resize(n);
  x.values.resize(n);
  if (n > 0) std::memcpy(x.indices.data(), packed.indices.raw(), packed.indices.nbytes());
  if (half)
    std::copy_n(packed.values.data<c10::Half>(), n, x.values.begin());
  else if (n > 0)
    std::memcpy(x.values.data(), packed.values.raw(), packed.values.nbytes());
  for (std::size_t i = 1; i < n; ++i)
    if (x.indices[i] <= x.indices[i - 1])
      return bad_packed("index " + std::to_string(x.indices[i]) + " follows index " +
                        std::to_string(x.indices[i - 1]));
  if (n > 0 && x.indices.back() >= d)
    return bad_packed("index " + std::to_string(x.indices.back()) + " of a vector of " +
                      std::to_string(d));
  return x;
}

}  // namespace grapevine
