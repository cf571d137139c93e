// GradientBuckets: a gradient in one flat tensor, bucket by bucket while the backward pass runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/model/flat_params.hpp"

namespace grapevine {

// Consecutive parameters: those of the numbers [first, first + count), elements [begin, begin +
// size) of the flat tensor.
struct GradientBucket {
  std::size_t first = 0, count = 0;
  std::int64_t begin = 0, size = 0;
};

// From the last parameters to the first, about the order in which a backward pass computes their
// gradients. Each bucket is of whole parameters, and has no more than it needs for `bytes`; the
// last one has the rest. Pure: replicas of one model have equal buckets.
std::vector<GradientBucket> buckets_of(const FlatTensors& parameters, std::int64_t bytes);

// One gradient. Buckets are complete in their order, whatever the order in which gradients arrive:
// replicas that reduce them together do so in one order, also where their graphs differ.
//
// Not thread-safe.
class GradientBuckets {
 public:
  // Of a bucket whose values are in `flat`: its view.
  using Complete = std::function<void(at::Tensor bucket)>;

  // `buckets`: of buckets_of(parameters, …). `flat`: [d] float32 on the parameters' device. `adds`:
  // gradients are added to what is there. `factor`: values are multiplied by it afterwards; 1: they
  // are not. All must outlive this.
  GradientBuckets(const FlatTensors& parameters, const std::vector<GradientBucket>& buckets,
                  const at::Tensor& flat, bool adds, double factor, const Complete& complete);

  // The gradient of a parameter, each once, on the thread and in the stream that `complete` is
  // called in; a handle is kept until the bucket is complete.
  void add(std::size_t parameter, const at::Tensor& gradient);
  // No more gradients come: those that are missing are zero.
  void finish();

 private:
  void fill(const GradientBucket& bucket);

  // Constant after construction.
  const FlatTensors& parameters_;
  const std::vector<GradientBucket>& buckets_;
  const at::Tensor flat_;
  const bool adds_;
  const double factor_;
  const Complete& complete_;
  std::vector<std::size_t> bucket_of_;  // by parameter

  std::vector<std::size_t> missing_;   // by bucket: parameters
  std::vector<at::Tensor> gradients_;  // by parameter; of buckets that are complete: none
  std::size_t next_ = 0;               // the first bucket that is not complete
};

}  // namespace grapevine
