// ModelAverage: the mean of the ranks' de-biased models.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Sums in double precision, so that the mean of equal models is that model, bit for bit, and does
// not depend on the order beyond the last bit. Not thread-safe.
class ModelAverage {
 public:
  // z: [d]; buffers: [b] or empty. REQUIRES: the same shapes at every call.
  void add(const FrozenTensor& z, const FrozenTensor& buffers);
  std::int32_t count() const { return count_; }
  // REQUIRES: count() > 0.
  FrozenTensor z() const;
  FrozenTensor buffers() const;  // empty where none were added

 private:
  at::Tensor z_sum_;        // [d] float64
  at::Tensor buffers_sum_;  // [b] float64 or undefined
  std::int32_t count_ = 0;
};

// The same mean of models that are all there, without memory for a sum. `models`: not empty, [d]
// float32 on the CPU each; an empty tensor where they are.
FrozenTensor mean_of(const std::vector<FrozenTensor>& models);

// The parts one after the other, [sum of their sizes] float32.
FrozenTensor concatenate(const std::vector<FrozenTensor>& parts);

// out[i] is the mean of the models' element i, for `count` elements. `models`: not empty.
void mean_into(float* out, const std::vector<const float*>& models, std::int64_t count);

}  // namespace grapevine
