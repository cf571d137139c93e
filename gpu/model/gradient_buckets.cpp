#include "gpu/model/gradient_buckets.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

std::vector<GradientBucket> buckets_of(const FlatTensors& parameters, std::int64_t bytes) {
  const auto enough = bytes / static_cast<std::int64_t>(sizeof(float));
  std::vector<GradientBucket> buckets;
  std::int64_t end = parameters.numel();
  std::size_t last = parameters.tensors().size();  // behind the bucket's
  for (std::size_t i = last; i-- > 0;) {
    const std::int64_t begin = parameters.begin_of(i);
    if (end - begin < enough && i > 0) continue;
    buckets.push_back({i, last - i, begin, end - begin});
    end = begin;
    last = i;
  }
  return buckets;
}

GradientBuckets::GradientBuckets(const FlatTensors& parameters,
                                 const std::vector<GradientBucket>& buckets, const at::Tensor& flat,
                                 bool adds, double factor, const Complete& complete)
    : parameters_(parameters),
      buckets_(buckets),
      flat_(flat),
      adds_(adds),
      factor_(factor),
      complete_(complete),
      bucket_of_(parameters.tensors().size()),
      gradients_(parameters.tensors().size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    missing_.push_back(buckets[b].count);
    for (std::size_t i = 0; i < buckets[b].count; ++i) bucket_of_[buckets[b].first + i] = b;
  }
}

void GradientBuckets::add(std::size_t parameter, const at::Tensor& gradient) {
  GRAPEVINE_CHECK(!gradients_.at(parameter).defined() && missing_[bucket_of_[parameter]] > 0,
                  "the gradient of a parameter was computed twice");
  gradients_[parameter] = gradient;
  --missing_[bucket_of_[parameter]];
  while (next_ < buckets_.size() && missing_[next_] == 0) fill(buckets_[next_++]);
}

void GradientBuckets::finish() {
  while (next_ < buckets_.size()) fill(buckets_[next_++]);
}

void GradientBuckets::fill(const GradientBucket& bucket) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = bucket.first; i < bucket.first + bucket.count; ++i)
    gradients.push_back(std::exchange(gradients_[i], at::Tensor()));
  at::Tensor values = flat_.narrow(0, bucket.begin, bucket.size);
  if (adds_)
    parameters_.add(gradients, values, bucket.first);
  else
    parameters_.pack(gradients, values, bucket.first);
  if (factor_ != 1) values.mul_(factor_);
  complete_(std::move(values));
}

}  // namespace grapevine
