#include "apps/train/train_job.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

#include <spdlog/spdlog.h>

#include "actors/run/thread_headroom.hpp"
#include "actors/run/validate.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/evaluate/evaluated_model.hpp"
#include "apps/monitoring/metrics_endpoint.hpp"
#include "apps/train/live/live_settings.hpp"
#include "apps/train/live/schedule.hpp"
#include "apps/train/resume/checkpoint_keeper.hpp"
#include "apps/train/train_computes.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_place.hpp"
#include "apps/train/train_resume.hpp"
#include "apps/train/train_trace.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "apps/zoo/weights.hpp"
#include "gpu/data/sampler.hpp"
#include "gpu/math_threads.hpp"
#include "gpu/objective.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxSteps = 1'000'000'000'000;  // of each worker
constexpr std::int64_t kMaxDevicesPerWorker = 64;
constexpr std::int64_t kMostAccumulated = 1'000'000;

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
  if (o.accumulate < 1 || o.accumulate > kMostAccumulated)
    return bad_input("--accumulate " + std::to_string(o.accumulate) + ": expected 1.." +
                     std::to_string(kMostAccumulated));
  if (o.batch_size > (std::int64_t{1} << 40) / o.accumulate)
    return bad_input("--batch-size " + std::to_string(o.batch_size) +
                     ": too large, use a smaller one");
  if (o.warmup_steps < 0)
    return bad_input("--warmup-steps " + std::to_string(o.warmup_steps) + ": expected 0 or more");
  if (o.warmup_steps > 0 && o.warmup_epochs > 0)
    return bad_input("--warmup-steps and --warmup-epochs: give one of them");
  if (o.batch_size % o.devices_per_worker != 0)
    return bad_input("--devices-per-worker " + std::to_string(o.devices_per_worker) +
                     ": they share the worker's batch evenly, which --batch-size " +
                     std::to_string(o.batch_size) + " does not allow: make it a multiple");
  if (!std::isfinite(o.epochs) || o.epochs <= 0)
    return bad_input("--epochs " + number(o.epochs) + ": expected a number above 0");
  if (o.steps < 0 || o.steps > kMaxSteps)
    return bad_input("--steps " + std::to_string(o.steps) + ": expected 1.." +
                     std::to_string(kMaxSteps));
  if (!std::isfinite(o.checkpoint_every) || o.checkpoint_every < 0)
    return bad_input("--checkpoint-every " + number(o.checkpoint_every) +
                     ": expected a number of epochs, 0 or more");
  if (o.threads < 0 || o.threads > kMaxThreads)
    return bad_input("--threads " + std::to_string(o.threads) + ": expected 0.." +
                     std::to_string(kMaxThreads));
  if (o.log_every < 1)
    return bad_input("--log-every " + std::to_string(o.log_every) + ": expected at least 1");
  if (o.min_ranks < 0)
    return bad_input("--min-ranks " + std::to_string(o.min_ranks) +
                     ": expected 0, for more than half of the ranks that train, or more");
  if (!std::isfinite(o.patience_s) || o.patience_s <= 0 || o.patience_s > 1e6)
    return bad_input("--timeout " + number(o.patience_s) +
                     ": expected seconds, more than 0 and at most 1000000");
  if (!std::isfinite(o.stall_abort_s) || o.stall_abort_s < 0 || o.stall_abort_s > 1e6)
    return bad_input("--stall-abort " + number(o.stall_abort_s) +
                     ": expected seconds, 0 for none, at most 1000000");
  if (o.nesterov && o.optimizer != "sgd")
    return bad_input("--nesterov does not fit --optimizer " + o.optimizer + ": it belongs to sgd");
  if (o.seed < 0) return bad_input("--seed " + std::to_string(o.seed) + ": expected 0 or more");
  if (o.validate != "epoch" && o.validate != "end")
    return unknown_name("--validate", o.validate, {"epoch", "end"});
  if (auto kept = parse_kept_checkpoints(o.checkpoint_keep); !kept) return kept.error();
  if (o.early_stop < 0)
    return bad_input("--early-stop " + std::to_string(o.early_stop) + ": expected 0 or more");
  if (o.early_stop > 0 && o.validate != "epoch")
    return bad_input("--early-stop " + std::to_string(o.early_stop) +
                     ": needs validations beside training: use --validate epoch");
  if (!o.metrics_port.empty())
    if (auto place = parse_metrics_place(o.metrics_port); !place) return place.error();
  if (!std::isfinite(o.join_timeout_s) || o.join_timeout_s <= 0 || o.join_timeout_s > 1e5)
    return bad_input("--join-timeout " + number(o.join_timeout_s) +
                     ": expected seconds, more than 0 and at most 100000");
  return check_trace_options(o);
}

Expected<std::shared_ptr<const SharedParts>> make_job_parts(const TrainJob& job,
                                                            std::int64_t steps_per_epoch) {
  const TrainOptions& o = job.options;
  auto plan = resolve(job.wiring);
  if (!plan) return plan.error();
  plan->seed = seed_of(o);
  Horizon horizon;
  horizon.steps_per_epoch = static_cast<double>(steps_per_epoch);
  horizon.by_samples = o.steps <= 0;
  if (o.epochs * horizon.steps_per_epoch > kMaxSteps)
    return bad_input("--epochs " + number_text(o.epochs) + ": more than " +
                     std::to_string(kMaxSteps) + " steps of each worker: use fewer");
  horizon.first_step = job.start.step;
  horizon.first_epoch = job.start.epoch;
  const double left = std::max(0.0, o.epochs - job.start.epoch) * horizon.steps_per_epoch;
  horizon.steps = o.steps > 0          ? o.steps
                  : job.start.step > 0 ? job.start.step + static_cast<Step>(std::ceil(left - 1e-9))
                                       : std::max<Step>(1, std::llround(left));
  LrConfig rate;
  rate.lr = o.lr;
  rate.spec = o.lr_schedule;
  rate.warmup_epochs = o.warmup_steps > 0
                           ? static_cast<double>(o.warmup_steps) / horizon.steps_per_epoch
                           : o.warmup_epochs;
  rate.warmup_from = o.warmup_from;
  rate.per_256 = o.lr_per_256;
  rate.global_batch = o.workers * step_samples(o);
  rate.epochs = horizon.epoch_of(horizon.steps);
  rate.steps_per_epoch = horizon.steps_per_epoch;
  auto lr = LrSchedule::make(rate);
  if (!lr) return lr.error();
  OptimizerConfig optimizer;
  optimizer.name = o.optimizer;
  optimizer.momentum = o.optimizer == "sgd" ? o.momentum : 0;
  optimizer.nesterov = o.nesterov;
  optimizer.weight_decay = o.weight_decay;
  return make_parts(*plan, horizon, *lr, optimizer, static_cast<std::int32_t>(o.workers));
}

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

// For a running job: the options that it began with, and others in their place.
ChangeParts change_of(const TrainJob& job, std::int64_t steps_per_epoch) {
  return [options = job.options, start = job.start, made = job.run.parts, steps_per_epoch](
             const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    TrainJob changed;
    changed.options = options;
    changed.start = start;
    if (auto applied = apply_settings(changed.options, settings); !applied) return applied.error();
    if (auto checked = check_numbers(changed.options); !checked) return checked.error();
    auto wiring = effective_wiring(changed.options);
    if (!wiring) return wiring.error();
    changed.wiring = std::move(*wiring);
    const auto parts = make_job_parts(changed, steps_per_epoch);
    if (!parts) return parts.error();
    Plan plan = (*parts)->plan;
    plan.compression.layers = made->plan.compression.layers;
    if (plan.compression.per_layer && plan.compression.layers.empty())
      return bad_input("wiring.per_layer = 'true' does not come into a job that began without it");
    OptimizerConfig optimizer = (*parts)->optimizer;
    optimizer.decayed = made->optimizer.decayed;
    return make_parts(plan, (*parts)->horizon, (*parts)->lr, optimizer,
                      static_cast<std::int32_t>(options.workers), made->layout);
  };
}

// The identity of a checkpoint after such a change.
std::function<JobIdentity(const LiveSettings&)> identity_after(const TrainJob& job) {
  return [options = job.options, begun = job.run.identity](const LiveSettings& settings) {
    TrainOptions changed = options;
    JobIdentity identity = begun;
    // The run has accepted them.
    if (!apply_settings(changed, settings)) return identity;
    identity["lr"] = number_text(changed.lr);
    identity["weight-decay"] = number_text(changed.weight_decay);
    const auto wiring = effective_wiring(changed);
    if (!wiring) return identity;
    for (auto at = identity.begin(); at != identity.end();)
      at = at->first.rfind("wiring.", 0) == 0 ? identity.erase(at) : std::next(at);
    for (const auto& [key, value] : wiring->keys()) identity["wiring." + key] = value;
    return with_resolved_wiring(std::move(identity));
  };
}

// Each change with those before it.
Expected<void> add_schedule(TrainJob& job) {
  const std::string& path = job.options.schedule;
  if (path.empty() || !job.is_head()) return {};
  auto schedule = read_schedule(path);
  if (!schedule) return schedule.error();
  if (!changes_members(job.run.parts->plan))
    return bad_input("--schedule " + path +
                     ": this wiring does not change while it runs: it has parameter servers, "
                     "levels or a hierarchy");
  LiveSettings settings;
  for (const ScheduledChange& change : *schedule) {
    const std::string where = "--schedule " + path + ": epoch " + number_text(change.epoch) + ": ";
    settings = with_settings(std::move(settings), change.changed);
    const auto parts = job.run.change(settings);
    if (!parts) return bad_input(where + parts.error().message);
    if (!changes_members((*parts)->plan))
      return bad_input(where +
                       "a wiring with parameter servers, levels or a hierarchy does not come into "
                       "a running job");
  }
  job.run.schedule = *std::move(schedule);
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

}  // namespace

Expected<void> check_train_options(const TrainOptions& o) {
  if (auto checked = check_numbers(o); !checked) return checked;
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  if (auto plan = resolve(*wiring); !plan) return plan.error();
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

// Without data the steps are the only length that there is.
Expected<std::int64_t> steps_per_epoch(const TrainJob& job) {
  const TrainOptions& o = job.options;
  if (!job.data) return std::max<std::int64_t>(1, o.steps);
  auto sampler = Sampler::make(seed_of(o), job.data->info().train_size, o.workers, step_samples(o));
  if (!sampler) return sampler.error();
  return sampler->steps_per_epoch();
}

// Sets the run's parts, ranks and delays.
Expected<void> lay_out_run(TrainJob& job, std::int64_t steps_per_epoch) {
  const TrainOptions& o = job.options;
  auto parts = make_job_parts(job, steps_per_epoch);
  if (!parts) return parts.error();
  job.run.parts = std::move(*parts);
  job.run.ranks = all_ranks_of(job.run.parts->plan, static_cast<std::int32_t>(o.workers));
  if (o.min_ranks > job.run.workers())
    return bad_input("--min-ranks " + std::to_string(o.min_ranks) + ": the job has only " +
                     std::to_string(job.run.workers()) + " ranks that train");
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

}  // namespace

Expected<TrainJob> make_train_job(TrainOptions options, const JobMaker& maker) {
  TrainJob job;
  job.options = std::move(options);
  const TrainOptions& o = job.options;
  if (auto checked = check_numbers(o); !checked) return checked.error();
  auto wiring = effective_wiring(o);
  if (!wiring) return wiring.error();
  job.wiring = std::move(*wiring);
  if (auto placed = (maker.place ? maker.place : find_place)(job); !placed) return placed.error();
  // A process that joins a run finds the run's own folder.
  if (o.resume.empty() && !maker.folders && job.is_head())
    if (auto free = check_no_run_in(given_folder(o), o.overwrite); !free) return free.error();

  if (auto threads = check_math_threads(); !threads) return threads.error();
  limit_math_threads(job.run.threads);
  if (auto read = (maker.data ? maker.data : read_data)(job); !read) return read.error();
  const auto steps = steps_per_epoch(job);
  if (!steps) return steps.error();
  if (auto read = read_resume(job); !read) return read.error();
  if (auto laid_out = lay_out_run(job, *steps); !laid_out) return laid_out.error();
  if (job.data)
    if (auto found = find_model(job); !found) return found.error();
  if (auto made = (maker.computes ? maker.computes : make_computes)(job); !made)
    return made.error();
  if (job.launched)
    if (auto fits = check_model_size(job.parameters, 0); !fits) return fits.error();
  job.parts = job.run.parts;
  job.run.change = change_of(job, *steps);
  job.run.identity = identity_of(job);
  if (auto fits = check_resume(job); !fits) return fits.error();
  job.run.identity[kStepsKey] = std::to_string(job.run.parts->horizon.steps);
  job.run.identity_with = identity_after(job);
  if (auto planned = add_schedule(job); !planned) return planned.error();

  // Ranks that share memory over UCX may wait for a dead rank forever.
  job.run.tolerates_worker_loss = o.transport != "ucx";
  job.run.seed = seed_of(o);
  job.run.log_every = o.log_every;
  describe_trace(job);
  job.run.patience = from_seconds(o.patience_s);
  job.run.first_patience = first_step_limit(o);
  if (o.stall_abort_s > 0) job.run.stall_abort = from_seconds(o.stall_abort_s);
  if (job.is_head()) warn_of_parts(job);
  if (auto made = (maker.folders ? maker.folders : make_folders)(job); !made) return made.error();
  if (auto made = (maker.transport ? maker.transport : make_transport)(job); !made)
    return made.error();
  return job;
}

}  // namespace grapevine
