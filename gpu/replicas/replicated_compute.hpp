// ReplicatedCompute: a worker with several devices, each with a slice of its batch.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/compute.hpp"
#include "gpu/device.hpp"
#include "gpu/replicas/gradient_group.hpp"
#include "gpu/replicas/host_mean.hpp"
#include "gpu/replicas/replica_threads.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Every replica computes the gradient of its slice, all at the same parameters, each always on the
// same thread of its own; the worker's gradient is their mean. To all others this is one
// worker: nothing that passes between its devices is a message, which is why consistent cuts need
// not know of it.
//
// Where a group is given, it all-reduces gradients on the devices; else they are added in the order
// of the replicas, so that equal requests are bit-identical: on the host, or, where z is on a
// device, on that of the first replica. Losses, accuracies and buffers (batch-norm statistics) are
// means over the replicas, samples are sums. The results are where z is.
//
// A replica's failure is the worker's, and aborts the group, so that no other waits for it; so does
// a step that takes longer than `timeout`.
class ReplicatedCompute final : public Compute {
 public:
  // `mean`: where the replicas of a group put theirs; null: the first one returns it. `lead`: of
  // the first replica; null: z is always in the host's memory. REQUIRES: replicas.size() > 1, of
  // one model and equal batch sizes; the group's, where there is one, made with it and with `mean`
  // (TorchComputeConfig::group, host_mean).
  ReplicatedCompute(std::vector<std::unique_ptr<Compute>> replicas,
                    std::shared_ptr<GradientGroup> group, Duration timeout,
                    std::shared_ptr<HostMean> mean = nullptr,
                    std::shared_ptr<DeviceRuntime> lead = nullptr);

  std::int64_t dimension() const override { return replicas_[0]->dimension(); }
  FrozenTensor initial_parameters() const override { return replicas_[0]->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return replicas_[0]->initial_buffers(); }

  Gradient gradient(GradientRequest request) override;
  // Whether one of the replicas does.
  bool reads() const override;

  // On the first device alone.
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return replicas_[0]->evaluate(z, buffers);
  }

 private:
  void compute_all(GradientRequest request, std::vector<Gradient>& parts);
  Gradient gradient_of(std::size_t replica, GradientRequest request) const;
  void ended(const std::string& error);
  void combine(std::vector<Gradient>& parts, Gradient& result);
  FrozenTensor value_of_group(std::vector<Gradient>& parts);
  FrozenTensor mean_value(std::vector<Gradient>& parts);
  FrozenTensor mean_buffers(std::vector<Gradient>& parts) const;
  FrozenTensor on_lead(std::vector<Gradient>& parts, FrozenTensor Gradient::*member) const;

  const std::vector<std::unique_ptr<Compute>> replicas_;
  const std::shared_ptr<GradientGroup> group_;
  const std::shared_ptr<HostMean> host_mean_;
  const Duration timeout_;
  const std::shared_ptr<DeviceRuntime> lead_;
  std::vector<FrozenTensor> recycled_;  // memory for downloaded results that are not passed on

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, of this step.
  std::size_t ended_ = 0;
  std::string first_error_;  // later ones may be but its consequence

  ReplicaThreads threads_;  // last: ends before what it uses
};

}  // namespace grapevine
