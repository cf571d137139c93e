#include "apps/train_job.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <spdlog/spdlog.h>

#include "actors/files.hpp"
#include "actors/rendezvous.hpp"
#include "apps/train_computes.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/math_threads.hpp"
#include "gpu/sampler.hpp"
#include "messages/names.hpp"
#include "messages/number_text.hpp"
#include "net/addresses.hpp"
#include "net/inproc.hpp"
#include "net/tcp.hpp"
#include "net/ucx.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxWorkers = 4096;
constexpr std::int64_t kDefaultWorkers = 4;
constexpr int kMaxThreads = 256;
constexpr std::int64_t kMaxDevicesPerWorker = 64;

Expected<void> check_numbers(const TrainOptions& o) {
  const auto number = number_text;
  if (o.workers < 1 && o.workers != kWorkersAsUsual)
    return bad_input("--workers " + std::to_string(o.workers) + ": expected 1.." +
                     std::to_string(kMaxWorkers));
  if (o.batch_size < 1)
    return bad_input("--batch-size " + std::to_string(o.batch_size) + ": expected at least 1");
  if (o.devices_per_worker < 1 || o.devices_per_worker > kMaxDevicesPerWorker)
    return bad_input("--devices-per-worker " + std::to_string(o.devices_per_worker) +
                     ": expected 1.." + std::to_string(kMaxDevicesPerWorker));
  if (o.batch_size % o.devices_per_worker != 0)
    return bad_input("--devices-per-worker " + std::to_string(o.devices_per_worker) +
                     ": they share the worker's batch evenly, which --batch-size " +
                     std::to_string(o.batch_size) + " does not allow: make it a multiple");
  if (!std::isfinite(o.epochs) || o.epochs <= 0)
    return bad_input("--epochs " + number(o.epochs) + ": expected more than 0");
  if (o.steps < 0) return bad_input("--steps " + std::to_string(o.steps) + ": expected at least 1");
  if (!std::isfinite(o.checkpoint_every) || o.checkpoint_every < 0)
    return bad_input("--checkpoint-every " + number(o.checkpoint_every) +
                     ": expected a number of epochs, 0 or more");
  if (o.threads < 0 || o.threads > kMaxThreads)
    return bad_input("--threads " + std::to_string(o.threads) + ": expected 0.." +
                     std::to_string(kMaxThreads));
  if (o.log_every < 1)
    return bad_input("--log-every " + std::to_string(o.log_every) + ": expected at least 1");
  if (!std::isfinite(o.patience_s) || o.patience_s <= 0 || o.patience_s > 1e6)
    return bad_input("--timeout " + number(o.patience_s) +
                     ": expected seconds, more than 0 and at most 1000000");
  if (o.seed < 0) return bad_input("--seed " + std::to_string(o.seed) + ": expected 0 or more");
  if (o.validate != "epoch" && o.validate != "end")
    return unknown_name("--validate", o.validate, {"epoch", "end"});
  if (o.checkpoint_keep != "all" && o.checkpoint_keep != "latest")
    return unknown_name("--checkpoint-keep", o.checkpoint_keep, {"all", "latest"});
  if (o.trace != "on" && o.trace != "off")
    return bad_input("--trace " + o.trace + ": expected on or off");
  if (!std::isfinite(o.join_timeout_s) || o.join_timeout_s <= 0 || o.join_timeout_s > 1e5)
    return bad_input("--join-timeout " + number(o.join_timeout_s) +
                     ": expected seconds, more than 0 and at most 100000");
  return {};
}

// Inside one operation; the devices of a worker share its threads. `workers_here`: on this machine.
int threads_per_device(const TrainOptions& options, std::int64_t workers_here) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int of_worker =
      options.threads > 0 ? options.threads : cores / static_cast<int>(workers_here);
  return std::max(1, of_worker / static_cast<int>(options.devices_per_worker));
}

// runs/<date>-<algorithm>, or the folder of the run that is resumed.
std::string output_folder(const TrainOptions& options) {
  namespace fs = std::filesystem;
  if (!options.out.empty()) return options.out;
  std::error_code ignored;
  if (!options.resume.empty() && fs::exists(fs::path(options.resume) / "checkpoint", ignored))
    return options.resume;
  return dated_folder(options.algorithm);
}

// A resumed run adds a file to those of the runs before it.
std::string trace_file(const std::string& out, std::int32_t process, bool resumed) {
  char name[64];
  for (int part = 0;; ++part) {
    if (part == 0)
      std::snprintf(name, sizeof name, "process-%04d.gvtrace", process);
    else
      std::snprintf(name, sizeof name, "process-%04d.%d.gvtrace", process, part);
    const std::string path = out + "/trace/" + name;
    std::error_code ignored;
    if (!resumed || !std::filesystem::exists(path, ignored)) return path;
  }
}

// What must be the same when a run goes on. The number of steps may grow.
JobIdentity identity_of(const TrainJob& job) {
  const TrainOptions& o = job.options;
  const auto number = number_text;
  JobIdentity identity = {{"workers", std::to_string(o.workers)},
                          {"model", o.model},
                          {"parameters", std::to_string(job.parameters)},
                          {"data", o.data.substr(0, o.data.find(':'))},
                          {"batch-size", std::to_string(o.batch_size)},
                          {"optimizer", o.optimizer},
                          {"momentum", number(o.momentum)},
                          {"nesterov", o.nesterov ? "true" : "false"},
                          {"weight-decay", number(o.weight_decay)},
                          {"lr", number(o.lr)},
                          {"lr-per-256", o.lr_per_256 ? "true" : "false"},
                          {"lr-schedule", o.lr_schedule},
                          {"warmup-epochs", number(o.warmup_epochs)},
                          {"seed", std::to_string(o.seed)}};
  // Absent from checkpoints that are older than the option.
  if (o.precision != "fp32") identity["precision"] = o.precision;
  if (o.channels_last) identity["channels-last"] = "true";
  if (o.devices_per_worker > 1)
    identity["devices-per-worker"] = std::to_string(o.devices_per_worker);
  for (const auto& [key, value] : job.wiring.keys()) identity["wiring." + key] = value;
  return identity;
}

Expected<std::shared_ptr<const SharedParts>> make_job_parts(const TrainJob& job,
                                                            std::int64_t steps_per_epoch) {
  const TrainOptions& o = job.options;
  auto plan = resolve(job.wiring);
  if (!plan) return plan.error();
  plan->seed = seed_of(o);
  Horizon horizon;
  horizon.steps_per_epoch = static_cast<double>(steps_per_epoch);
  horizon.steps =
      o.steps > 0 ? o.steps : std::max<Step>(1, std::llround(o.epochs * horizon.steps_per_epoch));
  LrConfig rate;
  rate.lr = o.lr;
  rate.spec = o.lr_schedule;
  rate.warmup_epochs = o.warmup_epochs;
  rate.per_256 = o.lr_per_256;
  rate.global_batch = o.workers * o.batch_size;
  rate.epochs = horizon.epoch_of(horizon.steps);
  auto lr = LrSchedule::make(rate);
  if (!lr) return lr.error();
  OptimizerConfig optimizer;
  optimizer.name = o.optimizer;
  optimizer.momentum = o.optimizer == "sgd" ? o.momentum : 0;
  optimizer.nesterov = o.nesterov;
  optimizer.weight_decay = o.weight_decay;
  return make_parts(*plan, horizon, *lr, optimizer, static_cast<std::int32_t>(o.workers));
}

// Whether every server had seen all of its `clients` leave.
bool servers_had_ended(const Checkpoint& checkpoint, std::size_t clients) {
  return std::all_of(checkpoint.ranks.begin() + static_cast<std::ptrdiff_t>(clients),
                     checkpoint.ranks.end(), [](const StateDict& server) {
                       const auto finished = server.integer("role.finished");
                       return finished && *finished == 1;
                     });
}

// Where rounds may be skipped, ranks end at different rounds and tell each other so. A checkpoint
// in which only some have ended can go on to that end, not beyond.
Expected<void> check_extension(const TrainJob& job, const Checkpoint& checkpoint) {
  const auto saved = checkpoint.identity.find(kStepsKey);
  const Step steps = job.run.parts->horizon.steps;
  if (saved == checkpoint.identity.end() || saved->second == std::to_string(steps)) return {};
  Step ended = 0;
  const bool servers = job.run.parts->plan.exchange == Exchange::server;
  std::vector<Step> behind = checkpoint.steps();
  behind.resize(static_cast<std::size_t>(job.run.workers()));
  for (const Step step : behind) ended += std::to_string(step) == saved->second;
  const bool all =
      ended == static_cast<Step>(behind.size()) && servers_had_ended(checkpoint, behind.size());
  if ((job.run.parts->plan.staleness == 0 && !servers) || ended == 0 || all) return {};
  return bad_input("--resume " + job.options.resume + ": " + std::to_string(ended) + " of " +
                   std::to_string(behind.size()) + " ranks had ended: first resume with --steps " +
                   saved->second + ", then go on from there");
}

Expected<void> load_resume(TrainJob& job) {
  if (job.options.resume.empty()) return {};
  auto checkpoint = read_checkpoint(job.options.resume);
  if (!checkpoint) return checkpoint.error();
  auto same = check_same_job(checkpoint->identity, job.run.identity, job.options.resume);
  if (!same) return same;
  if (checkpoint->ranks.size() != static_cast<std::size_t>(job.run.ranks))
    return bad_input(checkpoint->path + ": holds " + std::to_string(checkpoint->ranks.size()) +
                     " ranks, the job has " + std::to_string(job.run.ranks) +
                     ": the checkpoint is damaged, use an older one");
  std::vector<Step> behind = checkpoint->steps();
  behind.resize(static_cast<std::size_t>(job.run.workers()));
  const Step done = *std::min_element(behind.begin(), behind.end());
  const Step most = *std::max_element(behind.begin(), behind.end());
  const Exchange exchange = job.run.parts->plan.exchange;
  const Step end = job.run.parts->horizon.steps;
  if ((exchange != Exchange::bilateral && done > end) ||
      (exchange == Exchange::server && most > end))
    return bad_input("--resume " + job.options.resume + ": it is at step " + std::to_string(most) +
                     ", the job ends at step " + std::to_string(end) +
                     ": give more --steps or --epochs");
  if (auto extends = check_extension(job, *checkpoint); !extends) return extends;
  job.run.resume = std::move(*checkpoint);
  return {};
}

// Where the model's tensors lie in the flat one: for the figures of servers' clients, and for
// selection by layer.
Expected<void> add_layout(TrainJob& job) {
  if (job.run.servers() == 0 && !job.run.parts->plan.compression.per_layer) return {};
  auto model = job.model(seed_of(job.options));
  if (!model) return model.error();
  auto parts = std::make_shared<SharedParts>(*job.run.parts);
  std::int64_t begin = 0;
  for (const NamedTensor& named : (*model)->parameters()) {
    parts->layout.push_back({named.name, begin, named.tensor.numel()});
    parts->plan.compression.layers.push_back(named.tensor.numel());
    begin += named.tensor.numel();
  }
  job.run.parts = std::move(parts);
  return {};
}

Expected<void> check_transport(const TrainOptions& o, bool several_processes) {
  const std::vector<std::string> valid = {"inproc", "tcp", "ucx"};
  if (std::find(valid.begin(), valid.end(), o.transport) == valid.end())
    return unknown_name("--transport", o.transport, valid);
  if (o.transport == "inproc" && several_processes)
    return bad_input("--transport inproc: a launcher started several processes, use tcp or ucx");
  if (o.transport != "inproc" && !several_processes)
    return bad_input("--transport " + o.transport +
                     ": all workers share this process, use inproc, or start several processes "
                     "with 'grapevine launch -n N -- train …'");
  if (o.transport == "ucx" && !ucx_built_in())
    return bad_input(
        "--transport ucx: UCX is not in this build: install libucx-dev and build "
        "again, or use tcp");
  return {};
}

// wiring.hierarchy = "node": as many ranks as there are on this machine.
Expected<void> size_nodes(Wiring& wiring, bool launched, std::int64_t ranks_here) {
  const auto hierarchy = wiring.keys().find("hierarchy");
  if (hierarchy == wiring.keys().end() || hierarchy->second != "node") return {};
  if (!launched)
    return bad_input(
        "wiring.hierarchy = 'node': no launcher says how many ranks a node has: give the number");
  return wiring.set("hierarchy", std::to_string(ranks_here));
}

// Where this process stands among those of the run, and which ranks are its own.
Expected<void> find_place(TrainJob& job) {
  TrainOptions& o = job.options;
  auto launched = read_launcher_environment([](const char* name) { return std::getenv(name); });
  if (!launched) return launched.error();
  const bool several = launched->has_value() && (*launched)->processes > 1;
  if (several) job.launched = std::move(*launched);
  if (o.workers == kWorkersAsUsual) o.workers = several ? 1 : kDefaultWorkers;
  if (o.transport.empty()) o.transport = several ? "tcp" : "inproc";
  const std::int32_t processes = several ? job.launched->processes : 1;
  if (o.workers < 1 || o.workers > kMaxWorkers / processes)
    return bad_input("--workers " + std::to_string(o.workers) + ": expected 1.." +
                     std::to_string(kMaxWorkers / processes));
  if (auto checked = check_transport(o, several); !checked) return checked;
  const auto here = static_cast<Rank>(o.workers);
  const Rank first = several ? job.launched->process * here : 0;
  for (Rank rank = first; rank < first + here; ++rank) job.local_ranks.push_back(rank);
  const std::int32_t neighbours = several ? job.launched->local_processes : 1;
  job.run.threads = threads_per_device(o, o.workers * neighbours);
  if (auto sized = size_nodes(job.wiring, several, o.workers * neighbours); !sized) return sized;
  o.workers *= processes;
  return {};
}

// Where other processes reach this one: on the given interface, whose name may also be an address
// or a host name, else on the one that leads to the head.
Expected<std::string> own_address(const TrainOptions& o, const LaunchedProcess& launched) {
  if (o.network_interface.empty()) return own_address_towards(launched.head_host);
  auto address = interface_address(o.network_interface);
  const bool is_host = !own_address_towards(o.network_interface).empty();
  return address || !is_host ? address : o.network_interface;
}

Expected<std::unique_ptr<RemoteTransport>> make_remote_transport(const TrainOptions& o,
                                                                 const LaunchedProcess& launched) {
  if (o.transport == "ucx") {
    if (auto known = check_network_devices(o.network_interface); !known) return known.error();
    UcxOptions options;
    options.net_devices = o.network_interface;
    return make_ucx_transport(options);
  }
  auto own_host = own_address(o, launched);
  if (!own_host) return own_host.error();
  TcpOptions options;
  options.host = *std::move(own_host);
  const Heartbeats heartbeats = heartbeats_for(from_seconds(o.patience_s));
  options.heartbeat = heartbeats.interval;
  options.heartbeat_timeout = heartbeats.silence;
  return make_tcp_transport(options);
}

Expected<void> make_transport(TrainJob& job) {
  if (!job.launched) {
    job.run.transport = make_inproc_transport(job.run.ranks);
    return {};
  }
  auto made = make_remote_transport(job.options, *job.launched);
  if (!made) return made.error();
  ClusterConfig cluster;
  cluster.transport = std::move(*made);
  cluster.transport_name = job.options.transport;
  cluster.process = job.launched->process;
  cluster.processes = job.launched->processes;
  cluster.head_host = job.launched->head_host;
  cluster.head_port = job.launched->head_port;
  cluster.own_host = machine_name();
  cluster.version = GRAPEVINE_VERSION;
  cluster.out = job.out;
  cluster.patience = from_seconds(job.options.join_timeout_s);
  cluster.trace_file = [process = cluster.process, resumed = job.run.resume.has_value()](
                           const std::string& out) -> Expected<std::string> {
    if (auto made = ensure_writable_directory(out + "/trace"); !made) return made.error();
    return trace_file(out, process, resumed);
  };
  job.run.transport = cluster.transport;
  job.run.cluster = std::move(cluster);
  return {};
}

// What the run writes at its end must not fail for what can be seen at its beginning.
Expected<void> check_no_folder_in_the_way(const std::string& out) {
  for (const char* name : {"summary.json", "model.pt", "metrics.csv"}) {
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::path(out) / name;
    if (std::filesystem::is_directory(path, ignored))
      return bad_input("--out " + out + ": " + path.string() +
                       " is a folder where a file is to be written: remove it or choose another "
                       "folder");
  }
  return {};
}

void remove_stale(const std::string& out) {
  for (const char* folder : {"", "/trace", "/checkpoint"}) remove_stale_files(out + folder);
  remove_stale_checkpoints(out + "/checkpoint");
}

// What the head alone writes: the folder, checkpoints, its trace.
Expected<void> make_folders(TrainJob& job) {
  const TrainOptions& o = job.options;
  job.out = output_folder(o);
  if (!job.is_head()) return {};
  if (auto free = check_no_folder_in_the_way(job.out); !free) return free;
  if (auto writable = ensure_writable_directory(job.out); !writable) return writable;
  job.out_lock = lock_folder(job.out);
  if (job.out_lock) remove_stale(job.out);  // else another run writes there at this moment
  job.run.checkpoint_folder = job.out + "/checkpoint";
  job.run.checkpoint_every_epochs = o.checkpoint_every;
  job.run.keep_checkpoints = o.checkpoint_keep == "all";
  if (job.run.trace) {
    if (auto made = ensure_writable_directory(job.out + "/trace"); !made) return made;
    job.run.trace_file = trace_file(job.out, 0, job.run.resume.has_value());
  }
  return ensure_writable_directory(job.run.checkpoint_folder);
}

void warn_of_parts(const TrainJob& job) {
  const SharedParts& parts = *job.run.parts;
  if (!parts.graph) return;
  const std::int32_t nodes = job.run.workers() / std::max(1, parts.plan.hierarchy);
  const std::int32_t groups = parts.graph->parts();
  if (groups > 1)
    spdlog::warn(
        "wiring.topology = '{}' with {} ranks falls into {} groups that exchange nothing: each "
        "trains a model of its own; choose another topology, or more peers",
        parts.plan.topology, nodes, groups);
}

}  // namespace

Expected<void> check_train_options(const TrainOptions& o) {
  if (auto checked = check_numbers(o); !checked) return checked;
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  auto plan = resolve(*wiring);
  if (!plan && wiring->keys().count("hierarchy") == 0) return plan.error();
  const std::vector<std::string> transports = {"tcp", "ucx"};
  if (!o.transport.empty() &&
      std::find(transports.begin(), transports.end(), o.transport) == transports.end())
    return unknown_name("--transport", o.transport, transports);
  const std::vector<std::string> data = data_names();
  const std::string name = o.data.substr(0, o.data.find(':'));
  if (std::find(data.begin(), data.end(), name) == data.end())
    return unknown_name("data", name, data);
  return {};
}

Expected<TrainJob> make_train_job(TrainOptions options) {
  TrainJob job;
  job.options = std::move(options);
  const TrainOptions& o = job.options;
  if (auto checked = check_numbers(o); !checked) return checked.error();
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  job.wiring = std::move(*wiring);
  if (auto placed = find_place(job); !placed) return placed.error();

  limit_math_threads(job.run.threads);
  DataOptions data_options;
  data_options.seed = seed_of(o);
  auto data = make_data_set(o.data, data_options);
  if (!data) return data.error();
  job.data = std::move(*data);
  auto sampler = Sampler::make(seed_of(o), job.data->info().train_size, o.workers, o.batch_size);
  if (!sampler) return sampler.error();
  auto parts = make_job_parts(job, sampler->steps_per_epoch());
  if (!parts) return parts.error();
  job.run.parts = std::move(*parts);
  job.run.ranks = all_ranks_of(job.run.parts->plan, static_cast<std::int32_t>(o.workers));
  auto delay = parse_delay(o.delay, job.run.workers(), seed_of(o));
  if (!delay) return delay.error();
  if (delay->by_length() && !job.data->info().by_length)
    return bad_input("--delay " + o.delay + ": the samples of data '" + job.data->info().name +
                     "' have no lengths: use --data sequences, or delays of another kind");
  job.run.delay = std::move(*delay);
  auto model = make_model_factory(o.model, job.data->info());
  if (!model) return model.error();
  job.model = std::move(*model);
  if (auto laid_out = add_layout(job); !laid_out) return laid_out.error();
  if (auto made = make_computes(job); !made) return made.error();
  job.parts = job.run.parts;
  job.run.identity = identity_of(job);
  if (auto loaded = load_resume(job); !loaded) return loaded.error();
  job.run.identity[kStepsKey] = std::to_string(job.run.parts->horizon.steps);

  // Ranks that share memory over UCX may wait for a dead one without end.
  job.run.outlives_ranks = o.transport != "ucx";
  job.run.seed = seed_of(o);
  job.run.log_every = o.log_every;
  job.run.trace = o.trace == "on";
  job.run.patience = from_seconds(o.patience_s);
  if (job.is_head()) warn_of_parts(job);
  if (auto made = make_folders(job); !made) return made.error();
  if (auto made = make_transport(job); !made) return made.error();
  return job;
}

}  // namespace grapevine
