#include "apps/train/train_computes.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/train/replicas/link_replicas.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/model_memory.hpp"
#include "gpu/model/flat_params.hpp"
#include "gpu/model/graphs_notice.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/replicas/gpu_claims.hpp"
#include "gpu/replicas/gradient_group.hpp"
#include "gpu/replicas/replicated_compute.hpp"
#include "gpu/threads/math_threads.hpp"
#include "gpu/threads/near_cpus.hpp"
#include "gpu/torch_compute.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

// How many workers of this machine are in the processes before this one.
std::int64_t workers_before(const TrainJob& job) {
  const auto here = static_cast<std::int64_t>(job.local_ranks.size());
  return job.launched ? here * job.launched->local_process : 0;
}

// Of worker i of this process, in the order in which the machine's workers take devices: each
// process of a worker takes one, as a worker with one device does.
std::int64_t turn_of(const TrainJob& job, std::size_t i) {
  return (workers_before(job) + static_cast<std::int64_t>(i)) * job.processes.replicas +
         job.processes.replica;
}

struct Replica {
  std::string name;
  std::size_t index = 0;
  std::size_t of = 1;
  std::shared_ptr<GradientGroup> group;
  std::shared_ptr<HostMean> host_mean;
  CpuSet cpus;  // for the threads that launch the work of its device; empty: any
  std::shared_ptr<GraphsNotice> notice;
  std::shared_ptr<DeviceRuntime> runtime = nullptr;  // of its device; null: opened for it
};

// By how much the batches of a step lie behind those that the sampler has for it: see
// LoaderOptions.
Step steps_left_out(const TrainJob& job) {
  const Horizon& horizon = job.run.parts->horizon;
  const double all = horizon.steps_per_epoch * static_cast<double>(job.options.workers);
  const double of_sampler = all / static_cast<double>(job.sampled_ranks());
  return std::llround(horizon.first_epoch * std::round(of_sampler)) - horizon.first_step;
}

Expected<std::unique_ptr<Compute>> make_replica(const TrainJob& job, Rank rank, at::Device device,
                                                const Replica& replica) {
  auto precision = parse_precision(job.options.precision, device);
  if (!precision) return precision.error();
  auto runtime = replica.runtime ? Expected(replica.runtime) : open_device(device);
  if (!runtime) return runtime.error();
  spdlog::info("{}: on {}, {}", replica.name, device.str(), job.options.precision);
  TorchComputeConfig config;
  config.model = job.model;
  config.model_name = job.options.model;
  config.data = job.data;
  config.name = replica.name;
  config.rank = rank;
  config.ranks = job.sampled_ranks();
  config.batch_size = step_samples(job.options);
  config.passes = job.options.accumulate;
  config.replica = replica.index;
  config.replicas = replica.of;
  config.group = replica.group;
  config.spans_processes = replica.group && job.processes.replicas > 1;
  config.host_mean = replica.host_mean;
  config.seed = seed_of(job.options);
  config.runtime = *std::move(runtime);
  config.precision = *precision;
  config.scale_loss = *precision == Precision::fp16;
  config.channels_last = job.options.channels_last;
  config.graphs = job.options.cuda_graphs;
  config.graphs_notice = replica.notice;
  config.timeout = first_step_limit(job.options);
  config.near_cpus = replica.cpus;
  config.accuracy_every = job.options.log_every;
  config.last_step = job.run.parts->horizon.steps;
  config.loader.augment = true;
  config.loader.shift = steps_left_out(job);
  config.loss = *parse_loss(job.options.loss);  // checked with the data
  config.label_smoothing = job.options.label_smoothing;
  return TorchCompute::make(std::move(config));
}

// One for the process: the workers' devices are of one kind.
Expected<void> set_math(const TrainJob& job) {
  const auto device = choose_device(job.options.device, visible_gpus(), 0);
  if (!device) return device.error();
  const auto precision = parse_precision(job.options.precision, *device);
  if (!precision) return precision.error();
  if (job.options.cuda_graphs && device->is_cpu())
    return bad_input(
        "--cuda-graphs: needs a CUDA GPU, and the workers compute on the CPU: leave "
        "it out");
  set_math_mode(*precision, job.options.cudnn_benchmark);
  return {};
}

using Devices = std::vector<at::Device>;

// By worker and device: for the threads that launch the work of the device; empty: any.
using WorkerCpus = std::vector<std::vector<CpuSet>>;

std::string replica_name(Rank rank, std::size_t replica, std::size_t of) {
  const std::string name = "rank " + std::to_string(rank);
  return of == 1 ? name : name + ", replica " + std::to_string(replica);
}

// Threads beside those of an operation that are busy while a GPU computes: of the backward pass, of
// a reader of batches, and of a stager.
constexpr std::size_t kThreadsBeside = 3;

// A line of the log says for each device without a binding why it has none.
WorkerCpus near_cpus_of_workers(const TrainJob& job, const std::vector<Devices>& workers) {
  WorkerCpus all;
  Devices users;
  for (const Devices& devices : workers) {
    all.emplace_back(devices.size());
    users.insert(users.end(), devices.begin(), devices.end());
  }
  if (users.empty() || users.front().is_cpu() || !job.own_threads ||
      job.options.bind_threads == "none")
    return all;
  const auto asked = static_cast<std::size_t>(job.options.threads > 0 ? job.run.threads : 1);
  auto near = near_cpus_of_each(users, asked + kThreadsBeside);
  auto next = near.begin();
  for (std::size_t worker = 0; worker < workers.size(); ++worker)
    for (std::size_t i = 0; i < all[worker].size(); ++i, ++next) {
      if (*next)
        all[worker][i] = *std::move(*next);
      else
        spdlog::info("{}: its threads are not bound to CPUs: {}",
                     replica_name(job.local_ranks[worker], i, all[worker].size()),
                     next->error().message);
    }
  return all;
}

// To the CPUs to which workers will be bound, except where the user asks for more threads.
void limit_threads_to_near_cpus(TrainJob& job, const WorkerCpus& workers) {
  if (job.options.threads > 0) return;
  std::vector<CpuSet> sets;
  for (const auto& cpus : workers)
    std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(sets),
                 [](const CpuSet& set) { return !set.empty(); });
  if (sets.empty()) return;
  job.threads_of_cores = job.run.threads;
  job.run.threads = threads_within(job.run.threads, sets);
  if (job.run.threads == *job.threads_of_cores) return;
  spdlog::info("--threads {} for each GPU: no more CPUs are near", job.run.threads);
  limit_math_threads(job.run.threads);
}

// The devices of each worker of this process.
Expected<std::vector<Devices>> devices_of_workers(const TrainJob& job) {
  std::vector<Devices> all;
  for (std::size_t i = 0; i < job.local_ranks.size(); ++i) {
    auto devices = choose_devices(job.options.device, visible_gpus(), turn_of(job, i),
                                  job.options.devices_per_worker);
    if (!devices) return devices.error();
    all.push_back(*std::move(devices));
  }
  return all;
}

// The ids of all GPUs that workers of this machine use, once per use. Reported to the other
// processes of the run by files, as long as the job lasts.
Expected<std::vector<std::string>> gpus_in_use(TrainJob& job, const std::vector<Devices>& workers) {
  Devices here;
  for (const Devices& devices : workers) here.insert(here.end(), devices.begin(), devices.end());
  auto ids = device_ids(here);
  const bool spans = job.processes.replicas > 1;  // members claim theirs, too
  if (!ids || (!spans && !job.launched)) return ids;
  const LaunchedProcess& launched = spans ? job.processes.launched : *job.launched;
  if (launched.local_processes == 1) return ids;
  auto posted = GpuClaims::post(gpu_claims_folder(),
                                launched.head_host + ":" + std::to_string(launched.head_port),
                                launched.local_process, *ids);
  if (!posted) return posted.error();
  job.gpu_claims = std::make_shared<const GpuClaims>(*std::move(posted));
  return job.gpu_claims->gather(launched.local_processes, from_seconds(job.options.join_timeout_s));
}

// Why `devices` may be in use by other workers as well; empty: they are not.
std::string why_shared(const Devices& devices, const Expected<std::vector<std::string>>& in_use) {
  const auto own = device_ids(devices);
  if (!own || !in_use)
    return "it is not known whether other workers use these GPUs: " +
           (own ? in_use.error() : own.error()).message;
  const std::string shared = shared_gpu(*own, *in_use);
  return shared.empty() ? "" : "other workers use " + shared + " as well";
}

// Of a step that waits for its batch, twice for the group and for the device, each as long as that.
Duration replicas_limit(const TrainJob& job) { return 4 * first_step_limit(job.options); }

// The same of a member, which has taken its first step before the others count.
ReplicaLimits member_limits(const TrainJob& job) {
  return {replicas_limit(job), 4 * from_seconds(job.options.timeout_s)};
}

// Of the job's model, whatever it will compute on.
Expected<ReplicaShape> replica_shape(const TrainJob& job) {
  auto model = job.model(seed_of(job.options));
  if (!model) return model.error();
  const auto parameters = FlatTensors::of_parameters(**model);
  if (!parameters) return parameters.error();
  const auto buffers = FlatTensors::of_buffers(**model);
  if (!buffers) return buffers.error();
  return ReplicaShape{parameters->numel(), buffers->numel(), job.processes.replicas};
}

// A worker of this process.
struct Placed {
  Rank rank = 0;
  Devices devices;
  std::vector<CpuSet> cpus;  // near each device
  std::string shared;        // why others may use the devices as well; empty: they do not
  std::shared_ptr<GraphsNotice> notice;
};

// Of a worker with several processes: of a member its replica, of the lead the whole worker.
Expected<std::shared_ptr<Compute>> make_for_processes(TrainJob& job, const Placed& worker) {
  const Rank rank = worker.rank;
  const at::Device device = worker.devices.front();
  const WorkerProcesses& processes = job.processes;
  const auto replicas = static_cast<std::size_t>(processes.replicas);
  const auto index = static_cast<std::size_t>(processes.replica);
  const auto shape = replica_shape(job);
  if (!shape) return shape.error();
  job.parameters = shape->parameters;
  const auto group = link_replicas(
      job, {"rank " + std::to_string(rank), *shape, device, worker.shared, member_limits(job)});
  if (!group) return group.error();
  job.process_group = *group;
  auto own = make_replica(job, rank, device,
                          {replica_name(rank, index, replicas), index, replicas, *group, nullptr,
                           worker.cpus.front(), worker.notice});
  if (!own) return own.error();
  if (processes.is_member()) return std::shared_ptr<Compute>(*std::move(own));
  std::vector<std::unique_ptr<Compute>> all;
  all.push_back(*std::move(own));
  for (std::int32_t i = 1; i < processes.replicas; ++i)
    all.push_back(std::make_unique<RemoteReplica>(job.members, i, *all.front()));
  return std::shared_ptr<Compute>(
      std::make_shared<ReplicatedCompute>(std::move(all), *group, replicas_limit(job)));
}

Expected<std::shared_ptr<Compute>> make_compute(TrainJob& job, const Placed& worker) {
  if (job.processes.replicas > 1) return make_for_processes(job, worker);
  const auto& [rank, devices, cpus, shared, notice] = worker;
  const std::string name = replica_name(rank, 0, 1);
  if (devices.size() == 1) {
    auto made =
        make_replica(job, rank, devices.front(), {name, 0, 1, nullptr, nullptr, cpus[0], notice});
    if (!made) return made.error();
    return std::shared_ptr<Compute>(*std::move(made));
  }
  auto group = open_group(name, devices, shared, first_step_limit(job.options));
  if (!group) return group.error();
  auto lead = open_device(devices.front());
  if (!lead) return lead.error();
  const auto mean = *group ? std::make_shared<HostMean>() : nullptr;
  std::vector<std::unique_ptr<Compute>> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto made = make_replica(job, rank, devices[i],
                             {replica_name(rank, i, devices.size()), i, devices.size(), *group,
                              mean, cpus[i], notice, i == 0 ? *lead : nullptr});
    if (!made) return made.error();
    replicas.push_back(*std::move(made));
  }
  return std::shared_ptr<Compute>(std::make_shared<ReplicatedCompute>(
      std::move(replicas), *group, replicas_limit(job), mean, *lead));
}

// Why the ranks cannot keep their models on the workers' devices, before the workers are made;
// empty: they can.
std::string why_on_host(const TrainJob& job, const std::vector<Devices>& workers) {
  if (workers.empty()) return "no rank of this process trains";
  if (workers.front().front().is_cpu()) return "the workers compute on the CPU";
  const Plan& plan = job.run.parts->plan;
  if (!plan.role->any_device(plan))
    return "role '" + plan.role->name + "' keeps its vectors in the host's memory";
  return "";
}

Expected<void> refused_device(const std::string& why) {
  return bad_input("--peers device: " + why + ": choose --peers host");
}

// Whether packed vectors, and so whole ones, cross the host's link in each exchange.
bool compresses_on_host(const SharedParts& parts) {
  if (!reduces_on_any_device(parts.plan.compression)) return true;
  if (!parts.plan.role->parts_inside) return false;
  const auto levels = parts.plan.role->parts_inside(parts);
  return std::any_of(levels.begin(), levels.end(),
                     [](const auto& level) { return compresses_on_host(*level); });
}

// For each actor of the rank streams of its own; `cpus`: for its stagers.
Expected<PeerDevice> open_for_peer(at::Device device, bool other_processes, const CpuSet& cpus) {
  PeerDevice opened;
  opened.stager_cpus = cpus;
  for (auto* const runtime : {&opened.peer, &opened.outgoing, &opened.incoming}) {
    if (runtime != &opened.peer && !other_processes) break;
    auto made = open_device(device);
    if (!made) return made.error();
    *runtime = *std::move(made);
  }
  return opened;
}

// The ranks of this process; a server, which only the first process has, is one of them.
std::vector<Rank> ranks_here(const TrainJob& job) {
  std::vector<Rank> ranks = job.local_ranks;
  for (Rank rank = job.run.workers(); job.is_head() && rank < job.run.world_size(); ++rank)
    ranks.push_back(rank);
  return ranks;
}

// Models in the host's memory, which GPUs read in each step.
Expected<void> pin_models(TrainJob& job, const std::vector<Devices>& workers) {
  if (workers.empty() || workers.front().front().is_cpu() || job.options.pinned_models == 0)
    return {};
  auto runtime = open_device(workers.front().front());
  if (!runtime) return runtime.error();
  const std::size_t model =
      StagingPool::block_bytes(sizeof(float) * static_cast<std::size_t>(job.parameters));
  job.run.model_memory = ModelMemory::make(
      [device = *std::move(runtime)](std::size_t bytes) { return device->pinned_memory(bytes); },
      static_cast<std::size_t>(job.options.pinned_models) * ranks_here(job).size() * model);
  return {};
}

// Of the ranks of this process; a server is on the device of a worker.
Expected<void> place_peers(TrainJob& job, const std::vector<Devices>& workers,
                           const WorkerCpus& cpus) {
  const std::string& asked = job.options.peers;
  if (asked == "host") return pin_models(job, workers);
  std::string why = why_on_host(job, workers);
  if (why.empty() && job.processes.replicas > 1 && !job.process_group)
    why =
        "no NCCL group takes a worker's model from the GPU of its first process to the others "
        "(the line about the sum of gradients has the reason)";
  if (asked == "device" && !why.empty()) return refused_device(why);
  if (asked == "auto" && why.empty() && compresses_on_host(*job.run.parts))
    why = "this wiring compresses there, so that whole vectors would cross the host's link";
  if (!why.empty()) {
    spdlog::info("--peers auto: the ranks keep their models in the host's memory: {}", why);
    return pin_models(job, workers);
  }
  const std::vector<Rank> ranks = ranks_here(job);
  std::vector<PeerDevice> devices(static_cast<std::size_t>(job.run.world_size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t worker = i % workers.size();
    auto opened =
        open_for_peer(workers[worker].front(), job.launched.has_value(), cpus[worker].front());
    if (!opened) return opened.error();
    devices[static_cast<std::size_t>(ranks[i])] = *std::move(opened);
  }
  job.run.peer_devices = std::move(devices);
  spdlog::info("the ranks keep their models on the workers' GPUs");
  return {};
}

}  // namespace

Expected<void> check_peers(const std::string& asked) {
  if (asked == "host" || asked == "device" || asked == "auto") return {};
  return unknown_name("--peers", asked, {"host", "device", "auto"});
}

Expected<void> check_bind_threads(const std::string& asked) {
  if (asked == "near" || asked == "none") return {};
  return unknown_name("--bind-threads", asked, {"near", "none"});
}

Expected<void> make_computes(TrainJob& job) {
  if (auto known = check_peers(job.options.peers); !known) return known;
  if (auto known = check_bind_threads(job.options.bind_threads); !known) return known;
  if (auto set = set_math(job); !set) return set;
  job.run.computes.resize(static_cast<std::size_t>(job.options.workers));
  job.run.batches_before = steps_left_out(job) * job.sampled_ranks();
  const auto devices = devices_of_workers(job);
  if (!devices) return devices.error();
  if (const std::string why = why_on_host(job, *devices);
      job.options.peers == "device" && !why.empty())
    return refused_device(why);  // before this process waits for those of its worker
  Expected<std::vector<std::string>> in_use = std::vector<std::string>();
  const bool replicated = job.options.devices_per_worker > 1 || job.processes.replicas > 1;
  if (replicated && devices->front().front().is_cuda()) in_use = gpus_in_use(job, *devices);
  const WorkerCpus cpus = near_cpus_of_workers(job, *devices);
  limit_threads_to_near_cpus(job, cpus);
  const auto notice = std::make_shared<GraphsNotice>(job.is_head());
  for (std::size_t i = 0; i < job.local_ranks.size(); ++i) {
    const Rank rank = job.local_ranks[i];
    const Devices& own = (*devices)[i];
    auto compute = make_compute(job, {rank, own, cpus[i], why_shared(own, in_use), notice});
    if (!compute) return compute.error();
    job.parameters = (*compute)->dimension();
    job.run.computes[static_cast<std::size_t>(rank)] = std::move(*compute);
  }
  if (job.processes.is_member()) return {};  // its rank is its lead's
  if (auto placed = place_peers(job, *devices, cpus); !placed) return placed;
  if (!job.is_head()) return {};
  const auto device = choose_device(job.options.device, visible_gpus(),
                                    turn_of(job, 0) * job.options.devices_per_worker);
  if (!device) return device.error();
  auto evaluator = make_replica(job, 0, *device, {"rank 0", 0, 1, nullptr, nullptr, {}, notice});
  if (!evaluator) return evaluator.error();
  job.evaluator = std::move(*evaluator);
  const bool has_test = job.data->info().test_size > 0;
  if (job.options.validate == "epoch" && has_test) job.run.evaluator = job.evaluator;
  return {};
}

}  // namespace grapevine
