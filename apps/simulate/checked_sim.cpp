#include "apps/simulate/checked_sim.hpp"

#include "actors/run/simulation/watched_compute.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {
namespace {

// All ranks exchange by themselves, with each other.
bool steps_alone(const Plan& plan) {
  return plan.hierarchy == 1 && !plan.role->parts_inside && plan.servers == 0;
}

bool exchanges_at_each_step(const Plan& plan) {
  const LocalSteps& steps = plan.local.steps;
  return !steps.changes() && steps.by_epoch.at(0) == 1;
}

// docs/algorithms.md gives the bounds of the roles; -1: none.
std::int64_t most_staleness(const Plan& plan) {
  if (!steps_alone(plan) || !exchanges_at_each_step(plan)) return -1;
  return plan.role->synchronous(plan) ? 0 : plan.role->most_staleness(plan);
}

// Plain descent with one rate, at every step of each rank.
bool is_plain(const TrainJob& job) {
  const SharedParts& parts = *job.made_parts;
  const LocalUpdateSettings& local = parts.plan.local;
  const OptimizerConfig& optimizer = parts.optimizer;
  const double end = parts.horizon.epoch_of(parts.horizon.steps);
  return optimizer.name == "sgd" && optimizer.momentum == 0 && optimizer.weight_decay == 0 &&
         local.clip.norm == 0 && local.quasi_global == 0 && local.outer == Outer::none &&
         parts.lr.at(0) == parts.lr.base() && parts.lr.at(end / 2) == parts.lr.base() &&
         parts.lr.at(end) == parts.lr.base();
}

GradientSums gradient_sums(const TrainJob& job) {
  const Plan& plan = job.made_parts->plan;
  const bool plain = steps_alone(plan) && is_plain(job) && !plan.compression.enabled() &&
                     exchanges_at_each_step(plan);
  return plain ? plan.role->gradient_sums(plan) : GradientSums::unknown;
}

// Whether entries of the gradients themselves are sent, and what is not sent stays with its rank.
bool feeds_back(const TrainJob& job) {
  const Plan& plan = job.made_parts->plan;
  const CompressionSettings& compression = plan.compression;
  return steps_alone(plan) && plan.role->compresses_gradients(plan) && is_plain(job) &&
         (compression.name == "top-k" || compression.name == "random-k") &&
         compression.value_type == ValueType::f32 && compression.error_feedback &&
         compression.residual_decay == 1 && compression.reduce == SparseReduce::all_gather;
}

std::vector<std::int32_t> group_sizes(const SharedParts& parts) {
  const Plan& plan = parts.plan;
  if (plan.hierarchy <= 1) return {};
  std::vector<std::int32_t> sizes = {plan.hierarchy};
  if (!plan.role->parts_inside) return sizes;
  const auto nested = plan.role->parts_inside(parts);
  sizes = group_sizes(*nested.front());
  sizes.push_back(plan.hierarchy);
  for (const std::int32_t size : group_sizes(*nested.back()))
    sizes.push_back(size * plan.hierarchy);
  return sizes;
}

// The checks of a run whose wiring changes: the promises of a single wiring do not count.
CheckedRun through_changes(CheckedRun run, std::int32_t world) {
  run.servers = world - run.workers;  // that may come
  run.plans_each_rank = false;
  run.gives_weight = run.gives_sums = run.ranks_agree = run.feeds_back = false;
  run.compares_operations = false;
  run.most_staleness = -1;
  run.gradient_sums = GradientSums::unknown;
  return run;
}

// Virtual seconds in which a run that is not stuck has ended.
Duration usual_deadline(const SimJob& job) {
  Duration sum{std::chrono::seconds(60)};
  for (const Fault& fault : job.faults) sum += fault.length * 20;
  return sum + job.expected * 50;
}

}  // namespace

CheckedRun checked_run(const TrainJob& job) {
  const Plan& plan = job.made_parts->plan;
  CheckedRun run;
  run.workers = job.run.workers();
  run.vacant = run.workers - job.run.beginning_workers();
  run.servers = plan.servers;
  run.steps = job.made_parts->horizon.steps;
  // If samples are dealt anew among fewer ranks, each takes at least as many steps as planned.
  run.plans_each_rank = plan.role->plans_each_rank;
  const SentWeight weight = plan.hierarchy == 1 ? plan.role->sent_weight(plan) : SentWeight::none;
  run.gives_weight = weight == SentWeight::shares;
  run.gives_sums = weight == SentWeight::sums;
  run.group_sizes = group_sizes(*job.made_parts);
  run.most_staleness = most_staleness(plan);
  run.ranks_agree = plan.role->ranks_agree(plan);
  run.gradient_sums = gradient_sums(job);
  run.rate = job.made_parts->lr.base();
  run.feeds_back = feeds_back(job);
  run.seed = seed_of(job.options);
  return job.run.schedule.empty() ? run : through_changes(std::move(run), job.run.world_size());
}

void watch(SimJob& made, const std::shared_ptr<RunChecks>& checks) {
  std::vector<std::shared_ptr<Compute>>& computes = made.job.run.computes;
  checks->on_begin(computes.front()->initial_parameters());
  for (std::size_t rank = 0; rank < computes.size(); ++rank)
    computes[rank] = watched_compute(
        std::move(computes[rank]),
        [checks, rank = static_cast<Rank>(rank)](Step step, const FrozenTensor& gradient) {
          checks->on_gradient(rank, step, gradient);
        });
  made.job.run.world->network->set_watch(checks);
  made.job.run.trace.watch = [checks](const std::vector<TraceRecord>& records) {
    checks->on_records(records);
  };
}

Expected<CheckedOutcome> run_checked(SimOptions options) {
  options.train.trace = "on";
  options.train.trace_sample = 1;
  options.train.validate = "end";
  options.writes = false;
  auto made = make_sim_job(options);
  if (!made) return made.error();
  VirtualWorld& world = *made->job.run.world;
  if (world.deadline == Duration{0}) world.deadline = usual_deadline(*made);
  const auto checks = std::make_shared<RunChecks>(checked_run(made->job));
  watch(*made, checks);
  if (options.alter) options.alter(*made);
  const SimOutcome outcome = run_sim(std::move(made->job.run), std::make_shared<UnseenRun>());
  checks->on_end(outcome.result);
  return CheckedOutcome{outcome.trace_hash, outcome.events, outcome.virtual_seconds,
                        faults_text(made->faults), checks->violations()};
}

}  // namespace grapevine
