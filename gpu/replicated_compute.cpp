#include "gpu/replicated_compute.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

ReplicatedCompute::ReplicatedCompute(std::vector<std::unique_ptr<Compute>> replicas,
                                     std::shared_ptr<GradientGroup> group)
    : replicas_(std::move(replicas)),
      group_(std::move(group)),
      recycled_(replicas_.size()),
      threads_(static_cast<int>(replicas_.size())) {
  GRAPEVINE_CHECK(replicas_.size() > 1, replicas_.size(), " replicas");
}

Gradient ReplicatedCompute::gradient(GradientRequest request) {
  Gradient result;
  result.step = request.step;
  std::vector<Gradient> parts = all_gradients(std::move(request));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result.error = first_error_;
  }
  if (!result.error.empty()) return result;

  const double share = 1.0 / static_cast<double>(parts.size());
  for (const Gradient& part : parts) {
    result.loss += share * part.loss;
    result.top1 += share * part.top1;
    result.top5 += share * part.top5;
    result.samples += part.samples;
    result.length = std::max(result.length, part.length);
    result.data_seconds = std::max(result.data_seconds, part.data_seconds);
    result.compute_seconds = std::max(result.compute_seconds, part.compute_seconds);
  }
  if (parts[0].buffers.defined()) {
    at::Tensor buffers = parts[0].buffers.read().clone();
    for (std::size_t i = 1; i < parts.size(); ++i) buffers.add_(parts[i].buffers.read());
    buffers.mul_(share);
    result.buffers = FrozenTensor::freeze(std::move(buffers));
  }
  result.value = group_ ? std::move(parts[0].value) : FrozenTensor::freeze(mean_value(parts));
  return result;
}

// On the host, in the order of the replicas. What the others computed is memory for their next.
at::Tensor ReplicatedCompute::mean_value(std::vector<Gradient>& parts) {
  at::Tensor mean = std::move(parts[0].value).thaw();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    mean.add_(parts[i].value.read());
    recycled_[i] = std::move(parts[i].value);
  }
  mean.mul_(1.0 / static_cast<double>(parts.size()));
  return mean;
}

// REQUIRES of the replicas: z is dropped. Here it is dropped with the last of them.
std::vector<Gradient> ReplicatedCompute::all_gradients(GradientRequest request) {
  std::vector<Gradient> parts(replicas_.size());
  const int threads = std::max(1, at::get_num_threads() / static_cast<int>(replicas_.size()));
  recycled_[0] = std::move(request.recycled);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    GradientRequest part = request;
    part.recycled = std::move(recycled_[i]);
    recycled_[i] = FrozenTensor();
    threads_.run([this, i, threads, &result = parts[i], part = std::move(part)]() mutable {
      result = gradient_of(i, std::move(part), threads);
    });
  }
  threads_.waitWorkComplete();
  return parts;
}

Gradient ReplicatedCompute::gradient_of(std::size_t replica, GradientRequest request, int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
  Gradient result = replicas_[replica]->gradient(std::move(request));
  if (!result.error.empty()) fail(result.error);
  return result;
}

void ReplicatedCompute::fail(const std::string& error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_error_.empty()) first_error_ = error;
  }
  if (group_) group_->abort();
}

}  // namespace grapevine
