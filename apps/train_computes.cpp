#include "apps/train_computes.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "gpu/device.hpp"
#include "gpu/gradient_group.hpp"
#include "gpu/replicated_compute.hpp"
#include "gpu/torch_compute.hpp"

namespace grapevine {
namespace {

// Of the worker that is number `index` of this process: neighbours of one machine have cards one
// after the other.
Expected<std::vector<at::Device>> devices_of(const TrainJob& job, std::size_t index) {
  const auto here = static_cast<std::int64_t>(job.local_ranks.size());
  const std::int64_t before = job.launched ? job.launched->local_process * here : 0;
  const std::int64_t each = job.options.devices_per_worker;
  std::vector<at::Device> devices;
  for (std::int64_t i = 0; i < each; ++i) {
    const std::int64_t worker = before + static_cast<std::int64_t>(index);
    const auto device = choose_device(job.options.device, cuda_cards(), worker * each + i);
    if (!device) return device.error();
    devices.push_back(*device);
  }
  return devices;
}

// The part of `rank` that replica `replica` of `replicas` computes: its batches are slices of the
// batches that the rank would have alone.
Expected<std::unique_ptr<Compute>> make_replica(const TrainJob& job, Rank rank, at::Device device,
                                                std::int64_t replica, std::int64_t replicas,
                                                std::shared_ptr<GradientGroup> group) {
  auto precision = parse_precision(job.options.precision, device);
  if (!precision) return precision.error();
  auto runtime = open_device(device);
  if (!runtime) return runtime.error();
  TorchComputeConfig config;
  config.name = "rank " + std::to_string(rank);
  if (replicas > 1) config.name += ", replica " + std::to_string(replica);
  spdlog::info("{}: on {}, {}", config.name, device.str(), job.options.precision);
  config.model = job.model;
  config.model_name = job.options.model;
  config.data = job.data;
  config.rank = static_cast<Rank>(rank * replicas + replica);
  config.ranks = job.options.workers * replicas;
  config.batch_size = job.options.batch_size / replicas;
  config.seed = seed_of(job.options);
  config.runtime = *std::move(runtime);
  config.precision = *precision;
  config.scale_loss = *precision == Precision::fp16;
  config.channels_last = job.options.channels_last;
  config.patience = from_seconds(job.options.patience_s);
  config.group = std::move(group);
  config.replica = static_cast<std::size_t>(replica);
  config.loader.augment = true;
  return TorchCompute::make(std::move(config));
}

Expected<std::shared_ptr<Compute>> make_compute(const TrainJob& job, Rank rank,
                                                const std::vector<at::Device>& devices) {
  std::shared_ptr<GradientGroup> group;
  if (devices.size() > 1) {
    auto opened = open_group(devices, from_seconds(job.options.patience_s));
    if (!opened) return opened.error();
    group = *std::move(opened);
  }
  const auto replicas = static_cast<std::int64_t>(devices.size());
  std::vector<std::unique_ptr<Compute>> made;
  for (std::int64_t i = 0; i < replicas; ++i) {
    auto replica =
        make_replica(job, rank, devices[static_cast<std::size_t>(i)], i, replicas, group);
    if (!replica) return replica.error();
    made.push_back(*std::move(replica));
  }
  if (replicas == 1) return std::shared_ptr<Compute>(std::move(made.front()));
  return std::shared_ptr<Compute>(
      std::make_shared<ReplicatedCompute>(std::move(made), std::move(group)));
}

}  // namespace

Expected<void> make_computes(TrainJob& job) {
  job.run.computes.resize(static_cast<std::size_t>(job.options.workers));
  for (std::size_t i = 0; i < job.local_ranks.size(); ++i) {
    const Rank rank = job.local_ranks[i];
    const auto devices = devices_of(job, i);
    if (!devices) return devices.error();
    auto compute = make_compute(job, rank, *devices);
    if (!compute) return compute.error();
    job.parameters = (*compute)->dimension();
    job.run.computes[static_cast<std::size_t>(rank)] = std::move(*compute);
  }
  if (!job.is_head()) return {};
  const auto devices = devices_of(job, 0);
  if (!devices) return devices.error();
  auto evaluator = make_compute(job, 0, {devices->front()});
  if (!evaluator) return evaluator.error();
  job.evaluator = std::move(*evaluator);
  if (job.options.validate == "epoch") job.run.evaluator = job.evaluator;
  return {};
}

}  // namespace grapevine
