#include "gpu/replicas/replicated_compute.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/replicas/device_mean.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"

namespace grapevine {

ReplicatedCompute::ReplicatedCompute(std::vector<std::unique_ptr<Compute>> replicas,
                                     std::shared_ptr<GradientGroup> group, Duration timeout,
                                     std::shared_ptr<HostMean> mean,
                                     std::shared_ptr<DeviceRuntime> lead)
    : replicas_(std::move(replicas)),
      group_(std::move(group)),
      host_mean_(std::move(mean)),
      timeout_(timeout),
      lead_(std::move(lead)),
      recycled_(replicas_.size()),
      threads_(replicas_.size()) {
  GRAPEVINE_CHECK(replicas_.size() > 1, replicas_.size(), " replicas");
}

Gradient ReplicatedCompute::gradient(GradientRequest request) {
  Gradient result;
  result.step = request.step;
  std::vector<Gradient> parts(replicas_.size());
  compute_all(std::move(request), parts);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    result.error = first_error_;
  }
  if (!result.error.empty()) {
    const std::string lost = group_ ? group_->lost_replica() : std::string();
    if (!lost.empty()) result.error = lost;
    if (host_mean_) host_mean_->take();
    return result;
  }

  try {
    combine(parts, result);
  } catch (const std::exception& e) {
    result.error = "the mean of the replicas' gradients: " + one_line(e);
  }
  return result;
}

void ReplicatedCompute::combine(std::vector<Gradient>& parts, Gradient& result) {
  const double share = 1.0 / static_cast<double>(parts.size());
  double longest = 0;
  result.device_seconds = 0;
  for (const Gradient& part : parts) {
    result.device_seconds += share * part.device_seconds;
    result.loss += share * part.loss;
    result.top1 += share * part.top1;
    result.top5 += share * part.top5;
    result.samples += part.samples;
    result.length = std::max(result.length, part.length);
    result.data_seconds = std::max(result.data_seconds, part.data_seconds);
    longest = std::max(longest, part.data_seconds + part.compute_seconds);
  }
  result.compute_seconds = longest - result.data_seconds;
  if (parts[0].buffers.defined()) result.buffers = mean_buffers(parts);
  result.value = group_ ? value_of_group(parts) : mean_value(parts);
}

// From slices of all replicas, which devices in the host's memory do not download.
FrozenTensor ReplicatedCompute::value_of_group(std::vector<Gradient>& parts) {
  at::Tensor mean = host_mean_ ? host_mean_->take() : at::Tensor();
  return mean.defined() ? FrozenTensor::freeze(std::move(mean)) : std::move(parts[0].value);
}

// In the order of the replicas. On the host the memory of the other gradients is reused; on a
// device it would not be at once (TorchCompute), as the lead's stream reads it.
FrozenTensor ReplicatedCompute::mean_value(std::vector<Gradient>& parts) {
  if (!parts[0].value.device().is_cpu()) return on_lead(parts, &Gradient::value);
  at::Tensor mean = std::move(parts[0].value).thaw();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    mean.add_(parts[i].value.read());
    recycled_[i] = std::move(parts[i].value);
  }
  mean.mul_(1.0 / static_cast<double>(parts.size()));
  return FrozenTensor::freeze(std::move(mean));
}

// That of a group over processes is the first replica's already (TorchComputeConfig).
FrozenTensor ReplicatedCompute::mean_buffers(std::vector<Gradient>& parts) const {
  if (!parts[1].buffers.defined()) return std::move(parts[0].buffers);
  if (!parts[0].buffers.device().is_cpu()) return on_lead(parts, &Gradient::buffers);
  at::Tensor mean = parts[0].buffers.read().clone();
  for (std::size_t i = 1; i < parts.size(); ++i) mean.add_(parts[i].buffers.read());
  mean.mul_(1.0 / static_cast<double>(parts.size()));
  return FrozenTensor::freeze(std::move(mean));
}

FrozenTensor ReplicatedCompute::on_lead(std::vector<Gradient>& parts,
                                        FrozenTensor Gradient::*member) const {
  GRAPEVINE_CHECK(lead_ != nullptr, "results on a device, of a worker without one");
  std::vector<FrozenTensor> values;
  for (Gradient& part : parts) values.push_back(std::move(part.*member));
  return mean_on_device(*lead_, std::move(values));
}

bool ReplicatedCompute::reads() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& replica) { return replica->reads(); });
}

// Returns when all replicas have ended, and the last handle on z here with them.
void ReplicatedCompute::compute_all(GradientRequest request, std::vector<Gradient>& parts) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = 0;
    first_error_.clear();
  }
  recycled_[0] = std::exchange(request.recycled, {});
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    GradientRequest part = request;
    part.recycled = std::exchange(recycled_[i], {});
    threads_.run(i, [this, i, &result = parts[i], part = std::move(part)]() mutable {
      result = gradient_of(i, std::move(part));
      ended(result.error);
    });
  }
  bool in_time = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    in_time = changed_.wait_for(lock, timeout_, [this] { return ended_ == replicas_.size(); });
  }
  if (!in_time && group_) group_->abort();
  threads_.wait();
}

Gradient ReplicatedCompute::gradient_of(std::size_t replica, GradientRequest request) const {
  try {
    return replicas_[replica]->gradient(std::move(request));
  } catch (const std::exception& e) {
    Gradient failure;
    failure.error = "replica " + std::to_string(replica) + ": " + one_line(e);
    return failure;
  }
}

void ReplicatedCompute::ended(const std::string& error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    if (first_error_.empty()) first_error_ = error;
    changed_.notify_all();
  }
  if (!error.empty() && group_) group_->abort();
}

}  // namespace grapevine
