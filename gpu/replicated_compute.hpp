// ReplicatedCompute: a worker with several devices, each with a part of its batch.
#pragma once
#include <c10/core/thread_pool.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/compute.hpp"
#include "gpu/gradient_group.hpp"

namespace grapevine {

// Every replica computes the gradient of its part, all at the same parameters and on a thread of
// their own; the worker's gradient is their mean. To everybody else this is one worker: nothing of
// what happens between its devices is a message, which is why checkpoints need not know of it.
//
// Where a group is given, gradients meet in it, on the devices; else on the host, added in the
// order of the replicas, so that equal requests give equal bits. Losses, accuracies and buffers
// (batch-norm statistics) are means over the replicas, samples are sums, times those of the
// slowest.
//
// A replica's failure aborts the group, so that no other waits for it, and is the worker's.
//
// The threads of an operation are shared out: each replica has its part of those of the caller.
class ReplicatedCompute final : public Compute {
 public:
  // REQUIRES: replicas.size() > 1, of one model and equal batch sizes; the group's, where there is
  // one, made with it (TorchComputeConfig::group).
  ReplicatedCompute(std::vector<std::unique_ptr<Compute>> replicas,
                    std::shared_ptr<GradientGroup> group);

  std::int64_t dimension() const override { return replicas_[0]->dimension(); }
  FrozenTensor initial_parameters() const override { return replicas_[0]->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return replicas_[0]->initial_buffers(); }

  Gradient gradient(GradientRequest request) override;

  // On the first device alone.
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return replicas_[0]->evaluate(z, buffers);
  }

 private:
  std::vector<Gradient> all_gradients(GradientRequest request);
  Gradient gradient_of(std::size_t replica, GradientRequest request, int threads);
  at::Tensor mean_value(std::vector<Gradient>& parts);
  void fail(const std::string& error);

  const std::vector<std::unique_ptr<Compute>> replicas_;
  const std::shared_ptr<GradientGroup> group_;
  std::vector<FrozenTensor> recycled_;  // memory for the results of replicas 1, 2, …

  std::mutex mutex_;
  std::string first_error_;  // guarded by mutex_; later ones may be but its consequence

  c10::ThreadPool threads_;  // last: ends before what it uses
};

}  // namespace grapevine
