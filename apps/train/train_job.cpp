#include "apps/train/train_job.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/run/thread_headroom.hpp"
#include "actors/run/validate.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/evaluate/evaluated_model.hpp"
#include "apps/train/live/job_parts.hpp"
#include "apps/train/live/listening_check.hpp"
#include "apps/train/options/option_values.hpp"
#include "apps/train/train_computes.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_place.hpp"
#include "apps/train/train_resume.hpp"
#include "apps/train/train_trace.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "apps/zoo/weights.hpp"
#include "gpu/data/sampler.hpp"
#include "gpu/device.hpp"
#include "gpu/model/objective.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/threads/math_threads.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

Expected<void> read_data(TrainJob& job) {
  const TrainOptions& o = job.options;
  DataOptions data_options;
  data_options.seed = seed_of(o);
  data_options.skip_damaged = o.skip_damaged;
  const auto augmentation = parse_augmentation(o.augment);
  if (!augmentation) return augmentation.error();
  data_options.augment = *augmentation;
  auto data = make_data_set(o.data, data_options);
  if (!data) return data.error();
  job.data = o.skip_damaged ? without_damaged(*std::move(data)) : *std::move(data);
  const auto loss = parse_loss(o.loss);
  if (!loss) return loss.error();
  const DataInfo& info = job.data->info();
  if (o.early_stop > 0 && info.test_size == 0)
    return bad_input("--early-stop " + std::to_string(o.early_stop) + ": data '" + info.name +
                     "' has no test samples, so that no validation would end the run: leave it "
                     "out, or give data with a test set");
  return check_objective({info.task, *loss, o.label_smoothing}, info.name);
}

// The model, with the weights of --init; a run that continues has its own.
Expected<void> make_model(TrainJob& job) {
  const TrainOptions& o = job.options;
  std::string notice;
  auto model = make_model_factory(o.model, job.data->info(), &notice);
  if (!model) return model.error();
  if (job.is_head() && !notice.empty()) spdlog::warn("{}", notice);
  job.model = *std::move(model);
  if (o.init.empty() || job.run.resume) return {};
  if (is_checkpoint(o.init)) {
    auto begun = with_checkpoint(std::move(job.model), o.init);
    if (!begun) return bad_input("--init " + begun.error().message);
    job.model = *std::move(begun);
    return {};
  }
  std::error_code none;
  const bool run = std::filesystem::is_directory(o.init, none);
  const std::string file = run ? o.init + "/model.pt" : o.init;
  auto weights = read_weights(file);
  if (!weights) return bad_input("--init " + weights.error().message);
  auto begun = with_weights(std::move(job.model), *std::move(weights), file);
  if (!begun) return bad_input("--init " + begun.error().message);
  job.model = *std::move(begun);
  return {};
}

// Where the model's tensors lie in the flat one: for the figures of servers' clients, and for
// selection by layer.
Expected<void> add_layout(TrainJob& job) {
  const bool decays_in_part = job.options.no_decay && job.options.weight_decay > 0;
  if (job.run.servers() == 0 && !job.run.parts->plan.compression.per_layer && !decays_in_part)
    return {};
  auto model = job.model(seed_of(job.options));
  if (!model) return model.error();
  Plan plan = job.run.parts->plan;
  std::vector<TensorSpan> layout;
  std::int64_t begin = 0;
  OptimizerConfig optimizer = job.run.parts->optimizer;
  for (const NamedTensor& named : (*model)->parameters()) {
    layout.push_back({named.name, begin, named.tensor.numel()});
    if (decays_in_part && named.tensor.dim() > 1)
      optimizer.decayed.emplace_back(begin, named.tensor.numel());
    plan.compression.layers.push_back(named.tensor.numel());
    begin += named.tensor.numel();
  }
  if (decays_in_part && optimizer.decayed.empty()) optimizer.weight_decay = 0;
  const SharedParts& made = *job.run.parts;
  auto parts =
      make_parts(plan, made.horizon, made.lr, optimizer, job.run.workers(), std::move(layout));
  if (!parts) return parts.error();
  job.run.parts = *std::move(parts);
  return {};
}

// What a preset's name no longer says.
void warn_of_left_out_keys(const TrainJob& job) {
  const auto preset = find_preset(job.options.algorithm);
  if (!preset) return;
  std::string left_out;
  for (const auto& [key, value] : preset->wiring.keys())
    if (job.wiring.keys().count(key) == 0) left_out += (left_out.empty() ? "" : ", ") + key;
  if (!left_out.empty())
    spdlog::warn("keys of the preset {} that count for nothing beside yours are left out: {}",
                 preset->name, left_out);
}

void warn_of_parts(const TrainJob& job) {
  const SharedParts& parts = *job.run.parts;
  warn_of_left_out_keys(job);
  const auto sums = job.wiring.keys().find("running_sums");
  if (sums != job.wiring.keys().end() && sums->second == "true" && parts.optimizer.momentum > 0)
    spdlog::warn(
        "wiring.running_sums = 'true' waits for no round: the weights of ranks vary, and with "
        "momentum the run may diverge; use --momentum 0 or a lower --lr, or, where the transport "
        "loses nothing, running_sums = 'false'");
  if (!parts.graph) return;
  const std::int32_t nodes = job.run.workers() / std::max(1, parts.plan.hierarchy);
  const std::int32_t groups = parts.graph->component_count();
  if (groups > 1)
    spdlog::warn(
        "wiring.topology = '{}' with {} ranks falls into {} groups that exchange nothing: each "
        "trains a model of its own; choose another topology, or more peers",
        parts.plan.graph.topology, nodes, groups);
}

// LibTorch waits without end for a thread of its pool that the system refuses.
Expected<void> check_math_threads() {
  return check_thread_headroom(static_cast<int>(std::thread::hardware_concurrency()), 0, 1);
}

// As far as neither data nor the number of ranks matter.
Expected<void> check_rates_and_optimizer(const TrainOptions& o) {
  LrConfig rate = rate_of(o);
  rate.global_batch = step_samples(o);
  rate.epochs = o.epochs;
  // Without the data the length of an epoch, and so the order of epochs and steps, is not known.
  if (auto checked = LrSchedule::check(std::move(rate)); !checked) return checked;
  if (auto made = make_optimizer(optimizer_of(o)); !made) return made.error();
  return {};
}

// In place of the ranks of a job that is not known.
Error of_any_job(Error error) {
  const auto ranks = error.message.find(", with ranks in ");
  if (ranks != std::string::npos)
    error.message = error.message.substr(0, ranks) +
                    ", with ranks of the job: first its workers, from 0, then its servers";
  return error;
}

// Neither the ranks that train nor the servers behind them are known: each term has to fit some
// number of them.
Expected<void> check_delay(const TrainOptions& o) {
  constexpr auto kMost = static_cast<std::int32_t>(kMaxWorkers);
  std::istringstream terms(o.delay);
  for (std::string term; std::getline(terms, term, ',');) {
    const auto of_workers = parse_delay(term, kMost, seed_of(o));
    if (!of_workers && !parse_delay(term, 1, seed_of(o), kMost))
      return of_any_job(of_workers.error());
  }
  return {};
}

Expected<void> check_names(const TrainOptions& o) {
  // A GPU has all precisions, so that this asks for the name alone.
  if (auto known = parse_precision(o.precision, at::kCUDA); !known) return known.error();
  if (auto known = check_model_name(o.model); !known) return known;
  if (auto known = check_device_name(o.device); !known) return known;
  if (auto known = check_delay(o); !known) return known;
  if (auto known = check_control_address(o); !known) return known;
  if (auto known = check_peers(o.peers); !known) return known;
  if (auto known = check_bind_threads(o.bind_threads); !known) return known;
  if (o.resume == "auto" && o.out.empty())
    return bad_input("--resume auto: give --out DIR, in which the run begins or continues");
  return {};
}

}  // namespace

Expected<void> check_train_options(const TrainOptions& o) {
  if (auto checked = check_option_values(o); !checked) return checked;
  if (o.processes_per_worker > 1)
    return bad_input("--processes-per-worker " + std::to_string(o.processes_per_worker) +
                     " with --cluster: nodes restart and replace single processes: use "
                     "--devices-per-worker, or 'grapevine launch', srun or torchrun");
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  if (auto plan = resolve(*wiring); !plan) return plan.error();
  if (auto checked = check_rates_and_optimizer(o); !checked) return checked;
  if (auto checked = check_names(o); !checked) return checked;
  const std::vector<std::string> transports = {"auto", "shm", "tcp", "ucx"};
  if (!o.transport.empty() &&
      std::find(transports.begin(), transports.end(), o.transport) == transports.end())
    return unknown_name("--transport", o.transport, transports);
  if (auto loss = parse_loss(o.loss); !loss) return loss.error();
  if (auto augmentation = parse_augmentation(o.augment); !augmentation) return augmentation.error();
  const std::vector<std::string> data = data_names();
  const std::string name = o.data.substr(0, o.data.find(':'));
  if (std::find(data.begin(), data.end(), name) == data.end())
    return unknown_name("data", name, data);
  return {};
}

namespace {

// Without data the steps are the only length that there is. Where other ranks continue a run, the
// batches of an epoch stay: they need not take a whole number of steps.
Expected<double> steps_per_epoch(const TrainJob& job) {
  const TrainOptions& o = job.options;
  if (!job.data) return static_cast<double>(std::max<std::int64_t>(1, o.steps));
  const std::int64_t samples = job.data->info().train_size;
  const auto present = Sampler::make(seed_of(o), samples, o.workers, step_samples(o));
  if (!present) return present.error();
  const auto sampler = Sampler::make(seed_of(o), samples, job.sampled_ranks(), step_samples(o));
  if (!sampler) return sampler.error();
  return static_cast<double>(sampler->batches_per_epoch()) / static_cast<double>(o.workers);
}

// Servers that a change of the wiring may bring, at most.
constexpr std::int32_t kServerRoom = 8;

// The wiring is made for all places; those that begin need not be as many.
Expected<void> check_vacant_places(const TrainJob& job) {
  const RunConfig& run = job.run;
  if (run.vacant().empty()) return {};
  const std::string name = "--max-ranks " + std::to_string(job.options.max_ranks) + ": ";
  if (!changes_members(run.parts->plan))
    return bad_input(name + "this wiring does not change its ranks while it trains: leave it out");
  const auto view = run.first_view();
  if (!view) return {};
  if (const auto among = parts_of_view(*run.parts, *view, run.workers()); !among)
    return bad_input(fmt::format("{}the run cannot begin with {} ranks: {}", name,
                                 run.beginning_workers(), among.error().message));
  return {};
}

// Sets the run's parts, ranks and delays.
Expected<void> lay_out_run(TrainJob& job, double steps_per_epoch) {
  const TrainOptions& o = job.options;
  auto parts = make_job_parts(job, steps_per_epoch);
  if (!parts) return parts.error();
  job.run.parts = std::move(*parts);
  job.run.ranks = all_ranks_of(job.run.parts->plan, static_cast<std::int32_t>(o.workers));
  const Plan& plan = job.run.parts->plan;
  if (changes_members(plan)) job.run.spare_ranks = std::max(0, kServerRoom - plan.servers);
  if (o.min_ranks > job.run.beginning_workers())
    return bad_input("--min-ranks " + std::to_string(o.min_ranks) + ": the job " +
                     (job.run.initial_workers > 0 ? "begins with" : "has") + " only " +
                     std::to_string(job.run.beginning_workers()) + " ranks that train");
  if (auto fits = check_vacant_places(job); !fits) return fits;
  if (o.min_ranks > 0) job.run.min_workers = static_cast<std::int32_t>(o.min_ranks);
  auto delay = parse_delay(o.delay, job.run.workers(), seed_of(o), job.run.servers());
  if (!delay) return delay.error();
  if (delay->by_length() && !(job.data && job.data->info().by_length))
    return bad_input("--delay " + o.delay + ": the samples of data '" + o.data +
                     "' have no lengths: use --data sequences, or delays of another kind");
  job.run.delay = std::move(*delay);
  return {};
}

Expected<void> find_model(TrainJob& job) {
  if (auto made = make_model(job); !made) return made;
  return add_layout(job);
}

// Where other ranks continue a run, or begin it, its steps are rounded up: what is planned is not.
void keep_planned_end(TrainJob& job) {
  const bool others = job.start.ranks > 0 || !job.run.vacant().empty();
  if (!others || !job.run.parts->horizon.by_samples) return;
  auto parts = std::make_shared<SharedParts>(*job.run.parts);
  parts->horizon.planned_epochs = job.options.epochs;
  job.run.parts = std::move(parts);
}

}  // namespace

Expected<TrainJob> make_train_job(TrainOptions options, const JobMaker& maker) {
  TrainJob job;
  job.options = std::move(options);
  const TrainOptions& o = job.options;
  if (auto checked = check_option_values(o); !checked) return checked.error();
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  job.wiring = std::move(*wiring);
  if (auto placed = (maker.place ? maker.place : find_place)(job); !placed) return placed.error();
  // A process that joins a run finds the run's own folder.
  if (o.resume.empty() && !maker.folders && job.is_head())
    if (auto free = check_no_run_in(given_folder(o), o.overwrite); !free) return free.error();
  if (!maker.folders && job.is_head())
    if (auto open = check_listening(o); !open) return open.error();

  if (auto threads = check_math_threads(); !threads) return threads.error();
  limit_math_threads(job.run.threads);
  if (auto read = (maker.data ? maker.data : read_data)(job); !read) return read.error();
  if (auto read = read_resume(job); !read) return read.error();
  const auto steps = steps_per_epoch(job);
  if (!steps) return steps.error();
  if (auto laid_out = lay_out_run(job, *steps); !laid_out) return laid_out.error();
  if (job.data)
    if (auto found = find_model(job); !found) return found.error();
  keep_planned_end(job);
  if (auto made = (maker.computes ? maker.computes : make_computes)(job); !made)
    return made.error();
  job.made_parts = job.run.parts;
  job.run.change = change_of(job, *steps);
  job.run.identity = identity_of(job);
  if (auto fits = check_resume(job); !fits) return fits.error();
  job.run.identity[kStepsKey] = std::to_string(job.run.parts->horizon.steps);
  job.run.identity_with = identity_after(job);
  if (auto planned = add_schedule(job); !planned) return planned.error();

  job.run.seed = seed_of(o);
  job.run.log_every = o.log_every;
  describe_trace(job);
  job.run.timeout = from_seconds(o.timeout_s);
  job.run.first_timeout = first_step_limit(o);
  if (o.stall_abort_s > 0) job.run.stall_abort = from_seconds(o.stall_abort_s);
  job.run.lost_after = silence_of_lost_process(job);
  if (job.is_head()) warn_of_parts(job);
  if (job.processes.is_member()) return job;
  if (auto made = (maker.folders ? maker.folders : make_folders)(job); !made) return made.error();
  if (auto made = (maker.transport ? maker.transport : make_transport)(job); !made)
    return made.error();
  return job;
}

}  // namespace grapevine
