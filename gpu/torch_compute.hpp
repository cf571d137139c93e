// TorchCompute: gradients of a LibTorch or TorchScript model on one device.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/compute.hpp"
#include "gpu/data/batch_loader.hpp"
#include "gpu/data/data_set.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/transfers.hpp"
#include "gpu/model/flat_params.hpp"
#include "gpu/model/gradient_buckets.hpp"
#include "gpu/model/gradient_parts.hpp"
#include "gpu/model/graphs_notice.hpp"
#include "gpu/model/model.hpp"
#include "gpu/model/objective.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/model/step_graphs.hpp"
#include "gpu/replicas/gradient_group.hpp"
#include "gpu/replicas/host_mean.hpp"
#include "gpu/replicas/launch_gate.hpp"
#include "gpu/threads/near_cpus.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct TorchComputeConfig {
  ModelFactory model;
  std::string model_name;  // for errors
  std::shared_ptr<const DataSet> data;
  std::string name;  // for errors; empty: that of the rank
  Rank rank = 0;
  std::int64_t ranks = 1;
  std::int64_t batch_size = 32;  // of this rank
  // Passes in which a batch is computed, one after the other: memory for a part of it is enough.
  // REQUIRES: divides batch_size / replicas.
  std::int64_t passes = 1;
  // Of the rank's replicas, each of which computes a slice of its batches. REQUIRES: `replicas`
  // divides batch_size.
  std::size_t replica = 0;
  std::size_t replicas = 1;
  // Samples in a pass of an evaluation; 0: evaluated_samples() where those of a training pass fit.
  std::int64_t eval_batch_size = 0;
  std::uint64_t seed =
      0;  // of the initial parameters, the order of samples, masks; same on all ranks
  std::shared_ptr<DeviceRuntime> runtime;  // null: the CPU
  Precision precision = Precision::fp32;   // of the forward pass
  // Looks for the loss's factor under which no gradient is lost in the forward pass's precision.
  bool scale_loss = false;
  // Images on the device lie as [B, H, W, C] in memory. Needs samples of three dimensions.
  bool channels_last = false;
  // Passes are captured in graphs of the device and replayed, where StepGraphs can do that.
  bool graphs = false;
  // Takes the reasons why none are captured, of all workers of the process. Null: one that warns.
  std::shared_ptr<GraphsNotice> graphs_notice;
  Duration timeout = from_seconds(120.0);  // longest wait for the device in a step
  // On which the threads that launch the device's work run, from the first gradient on: the one
  // that calls gradient() and that of the backward passes (gpu/threads/near_cpus.hpp). Empty: they
  // stay as they are. REQUIRES: empty where the calling thread serves others as well.
  CpuSet near_cpus;
  // Of the replicas: gathers parameters and all-reduces gradients on the devices; null: none.
  std::shared_ptr<GradientGroup> group;
  // The other replicas of the group are in processes of their own: z and the buffers reach them by
  // the group where they are on the device of replica 0, which their requests have none of.
  bool spans_processes = false;
  // Of the replicas of a group that are all in this process: each downloads a slice of the mean
  // into it. Null: replica 0 downloads the whole. Each bucket comes down as soon as it is reduced.
  std::shared_ptr<HostMean> host_mean;
  // Least size of a bucket in which the group reduces a gradient; the same of all replicas. The
  // default is that of Li et al., PyTorch Distributed, VLDB 2020, sections 3.2.3 and 5.1.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  LoaderOptions loader;
  LossKind loss = LossKind::by_task;
  double label_smoothing = 0;  // in training only: evaluate() gives the plain loss
  // top1 and top5 are computed in steps that it divides, and in step `last_step` - 1; NaN in
  // others.
  Step accuracy_every = 1;
  Step last_step = 0;
};

// Parameters are bound to the request's z without a copy where z is in the memory that the device
// computes in, and uploaded otherwise (gpu/memory/transfers.hpp: streams, events, pinned memory);
// the results are where z is, and on the replica's own device where z is on that of another
// replica. With channels_last, and on a GPU where z would not begin each of them at a line of
// memory, they are copied from there once a step. The batch of the next step is uploaded while the
// device computes if it is there by then, so that no result waits for a disk; the time of reading
// it counts as the next step's. Loss: gpu/model/objective.hpp. Parameters that the loss does not
// reach have gradient zero. Between calls the model holds no handle on any z.
//
// In a group, each replica uploads a slice of z, and the group gathers the slices on the devices; a
// z that is on a device is copied from there to each. Every gradient is the group's mean. With a
// `host_mean` each replica downloads a slice of it into memory of replica 0, and returns none;
// without it, in the host's memory, and where z is on a device, replica 0 returns the whole. Where
// the group spans processes, a z on the device of replica 0 is broadcast by the group, together
// with the buffers; the means of both stay there, and the other replicas return figures only. The
// group reduces a bucket of the gradient while the backward pass computes the next ones; where a
// step has several passes, in the last one. A gradient that overflows does so in all replicas, so
// that all compute it again.
//
// With `graphs` the forward and backward pass is replayed as a graph of the device where it can be
// (gpu/model/step_graphs.hpp says where); uploads and downloads are as without. The bits are those
// of a pass that is not replayed.
//
// Parts of a gradient are given in the host's memory, where nothing follows the backward pass that
// needs all of it: one pass a step, no scaled loss, no group.
//
// Layers of the zoo draw from gpu/model/step_generator.hpp, so that equal requests give
// bit-identical results, independent of other threads. TorchScript's own dropout does not: it draws
// from LibTorch's global generator.
//
// Not thread-safe; any number of instances may compute at once on threads of their own.
class TorchCompute final : public Compute {
 public:
  // Makes the model and checks it against the data with a forward pass of two samples. Errors:
  // the factory's, the sampler's, the data set's; bad_input where the model throws or its output is
  // not output_shape(info, 2), naming model, data and both shapes; failed where memory runs out,
  // naming the rank.
  static Expected<std::unique_ptr<Compute>> make(TorchComputeConfig config);

  std::int64_t dimension() const override { return parameters_.numel(); }
  FrozenTensor initial_parameters() const override { return initial_parameters_; }
  FrozenTensor initial_buffers() const override { return initial_buffers_; }

  // request.buffers may be undefined: the initial ones are used. request.z is undefined where the
  // group gives it to this replica (spans_processes). request.recycled is used where it
  // is the only handle on [d] float32 in the memory that the device computes in. Errors are one
  // line that names the rank: the data set's, the model's, a loss that is not finite, a device that
  // does not answer within `timeout`, a gradient that does not fit into the precision.
  Gradient gradient(GradientRequest request) override;
  Gradient gradient_in_parts(GradientRequest request, const GivePart& give) override;

  // Evaluation mode, in passes of eval_batch_size; on a device, not while a group launches.
  // Errors: a data set without test samples, and those of model and data, a device that does not
  // answer. A loss that is not finite is returned as it is.
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override;

 private:
  TorchCompute(TorchComputeConfig config, std::unique_ptr<Model> model, FlatTensors parameters,
               FlatTensors buffers, Sampler sampler);

  struct Uploaded {
    Step step = 0;
    Batch batch;
    double data_seconds = 0;  // of reading it; reported with the batch's own step
  };

  Expected<void> check_fit();
  bool learns_in_training(const at::Tensor& input);
  Expected<void> check_request(const FrozenTensor& z, const FrozenTensor& buffers) const;
  bool knows_parts() const;
  void bind_threads();
  Gradient gradient_or_error(GradientRequest& request, const GivePart& give);
  Expected<Gradient> try_gradient(GradientRequest& request, const GivePart& give);
  Expected<Batch> batch_of(Step step, Gradient& result);
  void upload_batch_after(Step step);
  double worked_since_last_gradient();
  // How the vectors of a pass come here, and where its results stay. The same for all replicas of a
  // group: else some would wait for others in it.
  struct Route {
    bool resident = false;   // results stay on the device: z is on this, or on replica 0's
    bool sliced = false;     // the group gathers z from slices
    bool broadcast = false;  // the group gives z and the buffers of replica 0 to all
  };
  Route route_of(const FrozenTensor& z) const;
  PassInputs upload_inputs(const FrozenTensor& z, const FrozenTensor& buffers, const Route& route);
  Expected<void> complete_inputs(PassInputs& inputs, const Route& route);
  Expected<void> reduce_buffers(PassResults& pass);
  void download_bucket(const at::Tensor& mean, const at::Tensor& bucket);
  Expected<bool> try_pass(const FrozenTensor& z, GradientRequest& request, const Batch& batch,
                          Gradient& result, GradientParts* parts);
  Expected<PassResults> run_pass(const PassInputs& inputs, bool resident, Step step,
                                 FrozenTensor&& recycled, GradientParts* parts);
  Expected<bool> take_figures(const at::Tensor& figures, Gradient& result);
  Expected<bool> lower_scale(Step step);
  // A part of a pass's batch: its loss, detached, and its output; its gradient is added to `flat`,
  // or goes to `parts`, but for what is left, which is `flat` then.
  struct Part {
    at::Tensor loss;
    at::Tensor output;
  };
  Expected<Part> add_part(const Batch& part, std::int64_t index, at::Tensor& flat,
                          GradientParts* parts);
  void add_gradients(const at::Tensor& loss, bool first, at::Tensor& flat);
  Expected<void> reduce_gradients(const at::Tensor& loss, bool first, const at::Tensor& flat);
  Expected<PassResults> forward_backward(const at::Tensor& z, const Batch& batch, at::Tensor flat,
                                         bool counts_hits, GradientParts* parts);
  at::Tensor forward(const at::Tensor& input);
  std::int64_t evaluation_pass() const;
  Expected<Evaluation> try_evaluate(const FrozenTensor& z, const FrozenTensor& buffers);
  Expected<std::unique_ptr<LaunchGate::Pass>> gate_pass() const;
  Expected<at::Tensor> evaluate_batch(std::int64_t begin, std::int64_t end);
  at::Tensor upload_buffers(const FrozenTensor& buffers);
  void seed_masks(Step step) const;

  TorchComputeConfig config_;
  at::Device device_;
  std::unique_ptr<Model> model_;
  FlatTensors parameters_;
  FlatTensors buffers_;
  std::vector<GradientBucket> buckets_;  // of the group; empty: there is none
  FrozenTensor initial_parameters_;
  FrozenTensor initial_buffers_;
  LossScale loss_scale_;
  Transfers transfers_;  // before what lies in its streams
  Transfers::DeviceSlot z_slot_;
  Transfers::DeviceSlot buffers_slot_;
  std::optional<StepGraphs> graphs_;  // none: the config wants none
  // Of the pass: whether this replica downloads buckets of the mean, and, where it is for replica 0
  // of several processes, into what.
  bool downloads_mean_ = false;
  Transfers::HostMemory mean_;
  std::optional<Uploaded> next_;
  // worked_seconds() of the device at the last gradient; none: before the first, or not measured.
  std::optional<double> worked_before_;
  BatchLoader loader_;
};

}  // namespace grapevine
