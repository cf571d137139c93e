// Sparse vectors: selection of the largest entries, and merging.
//
// "Larger" compares |value| by its bits, so that a NaN is larger than all numbers and is never
// hidden; of equal entries the one with the lower index comes first. So every result is a function
// of the values alone: the same on all ranks, with any number of threads.
// All functions are thread-safe. Tensors: [d] float32, contiguous, on the CPU, d < 2^32.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "algorithms/kernels/value_type.hpp"
#include "messages/expected.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

// Entries of a vector, by strictly increasing index.
struct SparseVector {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;  // one per index

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
  void add(std::uint32_t index, float value) {
    indices.push_back(index);
    values.push_back(value);
  }
  // The entries of `more`, their indices `offset` higher. REQUIRES: they come after those here.
  void append(const SparseVector& more, std::uint32_t offset = 0);
};

// How many entries of a layer are kept; a layer begins where the one before it ends.
struct LayerQuota {
  std::int64_t end = 0;
  std::int64_t k = 0;
};

// The k largest entries of x; fewer where fewer are not zero: zeros are never chosen.
// REQUIRES: k >= 0.
//
// A threshold estimated from a sample leaves a little more than k candidates after one pass over x;
// the k largest of them are taken exactly. Where the estimate left fewer, a histogram finds one
// that does not. Memory: reads x once (three times then).
SparseVector select_top_k(const at::Tensor& x, std::int64_t k);

// All entries above a threshold estimated from a sample: about k of them, and exactly the k largest
// where the estimate is wrong by more than a half.
SparseVector select_about_k(const at::Tensor& x, std::int64_t k);

// The same selection from a list; `rejected` (may be null) receives the rest. Zeros are kept
// where there is room.
SparseVector keep_top_k(SparseVector x, std::int64_t k, SparseVector* rejected);

// The same within each layer. REQUIRES: `quotas` ascend to the length of the vector.
SparseVector keep_top_k(SparseVector x, const std::vector<LayerQuota>& quotas,
                        SparseVector* rejected);

// a + b: the values of common indices are added, even to zero.
SparseVector merge(const SparseVector& a, const SparseVector& b);
// The sum of all, pairwise in the order given: bitwise the same wherever it is taken. At least one.
SparseVector merge_all(std::vector<SparseVector> lists);

// The entries of a whose index is not (`common` false) or is (true) in b.
SparseVector intersect(const SparseVector& a, const SparseVector& b, bool common);

// x += factor * entries. REQUIRES: all indices < d.
void add_entries(at::Tensor& x, const SparseVector& entries, float factor);
// x at the indices <- 0. REQUIRES: as above.
void clear_entries(at::Tensor& x, const SparseVector& entries);

// Rounds the values to those that `type` holds; f16: the nearest, at most 65504 where finite.
// Returns the rounding errors, without zeros; exact for magnitudes below 2^29.
SparseVector round_values(SparseVector& x, ValueType type);

// Without the entries that travel as 0 in values of `type`; f16: magnitudes up to 2^-25.
SparseVector without_zeros(SparseVector x, ValueType type);

// As a message: u32 indices, and values of `type`, rounded as above.
Packed to_packed(const SparseVector& x, ValueType type = ValueType::f32);
// Errors (protocol): not in the form of to_packed, indices that do not increase or are not below d.
Expected<SparseVector> from_packed(const Packed& packed, std::int64_t d);

}  // namespace grapevine
