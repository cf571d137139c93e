#include "actors/run/models/slice_average.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "actors/run/models/model_average.hpp"
#include "messages/check.hpp"

namespace grapevine {

SliceAverage::SliceAverage(std::vector<Source> sources, std::int64_t most)
    : sources_(std::move(sources)), most_(most) {
  GRAPEVINE_CHECK(!sources_.empty() && !sources_.front().server && most > 0,
                  "average of no models");
  const Source& first = sources_.front();
  for (const Source& source : sources_)
    if (source.server) {
      if (server_at_.empty()) server_at_.push_back(0);
      server_at_.push_back(server_at_.back() + source.parameters);
    } else {
      GRAPEVINE_CHECK(source.parameters == first.parameters && source.buffers == first.buffers,
                      "models of different sizes");
      compared_.push_back(0);
    }
  GRAPEVINE_CHECK(server_at_.empty() || server_at_.back() == first.parameters,
                  "servers whose slices are no model");
  z_ = at::empty({first.parameters}, at::kFloat);
  if (first.buffers > 0) buffers_ = at::empty({first.buffers}, at::kFloat);
  plan_next();
}

void SliceAverage::plan_next() {
  slice_.reset();
  const std::int64_t parameters = z_.numel();
  const std::int64_t all = parameters + sources_.front().buffers;
  if (done_ == all) return;
  std::int64_t end = done_ < parameters ? parameters : all;
  std::size_t server = 0;
  of_server_ = done_ < parameters && !server_at_.empty();
  if (of_server_) {
    const auto next = std::upper_bound(server_at_.begin(), server_at_.end(), done_);
    end = *next;
    server = static_cast<std::size_t>(next - server_at_.begin()) - 1;
  }
  slice_ = Slice();
  slice_->count = std::min(most_, end - done_);
  for (std::size_t worker = 0; worker < workers(); ++worker)
    slice_->pieces.push_back({worker, done_});
  if (of_server_) slice_->pieces.push_back({workers() + server, done_ - server_at_[server]});
}

void SliceAverage::add(const std::vector<const float*>& values) {
  GRAPEVINE_CHECK(slice_ && values.size() == slice_->pieces.size(), "values of no slice");
  const std::int64_t parameters = z_.numel(), count = slice_->count;
  float* out = done_ < parameters ? z_.data_ptr<float>() + done_
                                  : buffers_.data_ptr<float>() + (done_ - parameters);
  if (of_server_)
    std::copy_n(values.back(), count, out);
  else
    mean_into(out, values, count);
  if (done_ < parameters) compare(values, out, count);
  done_ += count;
  plan_next();
}

void SliceAverage::compare(const std::vector<const float*>& values, const float* mean,
                           std::int64_t count) {
  for (std::size_t worker = 0; worker < workers(); ++worker) {
    double& sum = compared_[worker];
    for (std::int64_t i = 0; i < count; ++i) {
      const double difference = static_cast<double>(values[worker][i]) - mean[i];
      sum += difference * difference;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) scale_ += static_cast<double>(mean[i]) * mean[i];
}

FrozenTensor SliceAverage::z() {
  GRAPEVINE_CHECK(!slice_, "slices are missing");
  return FrozenTensor::freeze(std::move(z_));
}

FrozenTensor SliceAverage::buffers() {
  GRAPEVINE_CHECK(!slice_, "slices are missing");
  return buffers_.defined() ? FrozenTensor::freeze(std::move(buffers_)) : FrozenTensor();
}

double SliceAverage::consensus_distance() const {
  double distance = 0;
  if (scale_ == 0) return 0;
  for (const double compared : compared_)
    distance += compared == 0 ? 0 : std::sqrt(compared / scale_) / static_cast<double>(workers());
  return distance;
}

}  // namespace grapevine
