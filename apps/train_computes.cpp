#include "apps/train_computes.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "gpu/device.hpp"
#include "gpu/gradient_group.hpp"
#include "gpu/replicated_compute.hpp"
#include "gpu/torch_compute.hpp"

namespace grapevine {
namespace {

// The workers of this machine, in all of its processes, and which of them is the first here.
struct Neighbours {
  std::int64_t all = 0;
  std::int64_t before = 0;
};

Neighbours neighbours_of(const TrainJob& job) {
  const auto here = static_cast<std::int64_t>(job.local_ranks.size());
  if (!job.launched) return {here, 0};
  return {here * job.launched->local_processes, here * job.launched->local_process};
}

struct Replica {
  std::string name;
  std::size_t index = 0;
  std::size_t of = 1;
  std::shared_ptr<GradientGroup> group;
};

Expected<std::unique_ptr<Compute>> make_replica(const TrainJob& job, Rank rank, at::Device device,
                                                const Replica& replica) {
  auto precision = parse_precision(job.options.precision, device);
  if (!precision) return precision.error();
  auto runtime = open_device(device);
  if (!runtime) return runtime.error();
  spdlog::info("{}: on {}, {}", replica.name, device.str(), job.options.precision);
  TorchComputeConfig config;
  config.model = job.model;
  config.model_name = job.options.model;
  config.data = job.data;
  config.name = replica.name;
  config.rank = rank;
  config.ranks = job.options.workers;
  config.batch_size = job.options.batch_size;
  config.replica = replica.index;
  config.replicas = replica.of;
  config.group = replica.group;
  config.seed = seed_of(job.options);
  config.runtime = *std::move(runtime);
  config.precision = *precision;
  config.scale_loss = *precision == Precision::fp16;
  config.channels_last = job.options.channels_last;
  config.patience = from_seconds(job.options.patience_s);
  config.loader.augment = true;
  return TorchCompute::make(std::move(config));
}

Expected<std::shared_ptr<Compute>> make_compute(const TrainJob& job, Rank rank,
                                                const std::vector<at::Device>& devices) {
  const std::string name = "rank " + std::to_string(rank);
  if (devices.size() == 1) {
    auto made = make_replica(job, rank, devices.front(), {name, 0, 1, nullptr});
    if (!made) return made.error();
    return std::shared_ptr<Compute>(*std::move(made));
  }
  const Duration patience = from_seconds(job.options.patience_s);
  const std::int64_t wanted = neighbours_of(job).all * job.options.devices_per_worker;
  const bool exclusive =
      job.options.device.rfind("cuda:", 0) != 0 && wanted <= visible_gpus().visible;
  auto group = open_group(name, devices, exclusive, patience);
  if (!group) return group.error();
  std::vector<std::unique_ptr<Compute>> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto made = make_replica(job, rank, devices[i],
                             {name + ", replica " + std::to_string(i), i, devices.size(), *group});
    if (!made) return made.error();
    replicas.push_back(*std::move(made));
  }
  // A step waits for its batch, for the group and for the device, each as long as that.
  return std::shared_ptr<Compute>(
      std::make_shared<ReplicatedCompute>(std::move(replicas), *group, 3 * patience));
}

}  // namespace

Expected<void> make_computes(TrainJob& job) {
  job.run.computes.resize(static_cast<std::size_t>(job.options.workers));
  for (std::size_t i = 0; i < job.local_ranks.size(); ++i) {
    const Rank rank = job.local_ranks[i];
    const auto devices = choose_devices(job.options.device, visible_gpus(),
                                        neighbours_of(job).before + static_cast<std::int64_t>(i),
                                        job.options.devices_per_worker);
    if (!devices) return devices.error();
    auto compute = make_compute(job, rank, *devices);
    if (!compute) return compute.error();
    job.parameters = (*compute)->dimension();
    job.run.computes[static_cast<std::size_t>(rank)] = std::move(*compute);
  }
  if (!job.is_head()) return {};
  const auto device = choose_device(job.options.device, visible_gpus(),
                                    neighbours_of(job).before * job.options.devices_per_worker);
  if (!device) return device.error();
  auto evaluator = make_compute(job, 0, {*device});
  if (!evaluator) return evaluator.error();
  job.evaluator = std::move(*evaluator);
  if (job.options.validate == "epoch") job.run.evaluator = job.evaluator;
  return {};
}

}  // namespace grapevine
