#include "apps/train/live/job_parts.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "actors/record/checkpoints/checkpoint_writer.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/train/live/live_settings.hpp"
#include "apps/train/live/schedule.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/options/option_values.hpp"
#include "apps/train/train_resume.hpp"
#include "messages/check.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

// Of a run that continues with other numbers the last epoch is complete.
Step steps_of_epochs(double epochs, const HorizonStart& start, double steps_per_epoch) {
  const double left = std::max(0.0, epochs - start.epoch) * steps_per_epoch;
  if (start.step > 0 || steps_per_epoch != std::floor(steps_per_epoch))
    return start.step + static_cast<Step>(std::ceil(left - 1e-9));
  return std::max<Step>(1, std::llround(left));
}

LrConfig rate_of(const TrainOptions& o) {
  LrConfig rate;
  rate.lr = o.lr;
  rate.spec = o.lr_schedule;
  rate.warmup_epochs = o.warmup_epochs;
  rate.warmup_steps = static_cast<double>(o.warmup_steps);
  rate.warmup_from = o.warmup_from;
  rate.per_256 = o.lr_per_256;
  return rate;
}

OptimizerConfig optimizer_of(const TrainOptions& o) {
  OptimizerConfig optimizer;
  optimizer.name = o.optimizer;
  optimizer.momentum = o.optimizer == "sgd" ? o.momentum : 0;
  optimizer.nesterov = o.nesterov;
  optimizer.weight_decay = o.weight_decay;
  return optimizer;
}

Expected<std::shared_ptr<const SharedParts>> make_job_parts(const TrainJob& job,
                                                            double steps_per_epoch) {
  const TrainOptions& o = job.options;
  auto plan = resolve(job.wiring);
  if (!plan) return plan.error();
  plan->seed = seed_of(o);
  Horizon horizon;
  horizon.steps_per_epoch = steps_per_epoch;
  horizon.by_samples = o.steps <= 0;
  if (o.epochs * horizon.steps_per_epoch > kMaxSteps)
    return bad_input("--epochs " + number_text(o.epochs) + ": more than " +
                     std::to_string(kMaxSteps) + " steps of each worker: use fewer");
  horizon.first_step = job.start.step;
  horizon.first_epoch = job.start.epoch;
  horizon.steps = o.steps > 0 ? o.steps : steps_of_epochs(o.epochs, job.start, steps_per_epoch);
  LrConfig rate = rate_of(o);
  rate.global_batch = o.workers * step_samples(o);
  rate.epochs = horizon.by_samples && job.start.ranks > 0 ? o.epochs  // the steps are rounded up
                                                          : horizon.epoch_of(horizon.steps);
  rate.steps_per_epoch = horizon.steps_per_epoch;
  auto lr = LrSchedule::make(rate);
  if (!lr) return lr.error();
  if (job.start.step > 0) lr = lr->among(horizon);
  return make_parts(*plan, horizon, *lr, optimizer_of(o), static_cast<std::int32_t>(o.workers));
}

ChangeParts change_of(const TrainJob& job, double steps_per_epoch) {
  return [options = job.options, start = job.start, made = job.run.parts, steps_per_epoch](
             const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    TrainJob changed;
    changed.options = options;
    changed.start = start;
    if (auto applied = apply_settings(changed.options, settings); !applied) return applied.error();
    if (auto checked = check_option_values(changed.options); !checked) return checked.error();
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
    if (options.no_decay && optimizer.decayed.empty()) optimizer.weight_decay = 0;
    return make_parts(plan, (*parts)->horizon, (*parts)->lr, optimizer,
                      static_cast<std::int32_t>(options.workers), made->layout);
  };
}

std::function<JobIdentity(const LiveSettings&)> identity_after(const TrainJob& job) {
  return [options = job.options, begun = job.run.identity](const LiveSettings& settings) {
    TrainOptions changed = options;
    JobIdentity identity = begun;
    const auto applied = apply_settings(changed, settings);
    const auto wiring = effective_wiring(changed);
    GRAPEVINE_CHECK(applied.ok() && wiring.ok(), "the run has accepted these settings");
    for (const OptionTraits& option : option_traits())
      if (option.has(OptionTraits::live) && option.has(OptionTraits::identity))
        identity[option.name] = value_text(changed, option);
    for (auto at = identity.begin(); at != identity.end();)
      at = at->first.rfind("wiring.", 0) == 0 ? identity.erase(at) : std::next(at);
    for (const auto& [key, value] : wiring->keys()) identity["wiring." + key] = value;
    return with_resolved_wiring(std::move(identity));
  };
}

// The job of a resumed run has the changes that lie behind it, but for those that had been put off.
// Checkpoints of earlier programs do not say which.
static void erase_done(std::vector<ScheduledChange>& schedule, const Checkpoint& checkpoint,
                       std::int32_t workers) {
  const std::vector<double> epochs = checkpoint.epochs();
  const double behind = *std::min_element(epochs.begin(), epochs.begin() + workers);
  const auto next = checkpoint.identity.find(kNextChange);
  const double put_off = next == checkpoint.identity.end()
                             ? std::numeric_limits<double>::infinity()
                             : std::strtod(next->second.c_str(), nullptr);
  const auto stays = std::find_if(schedule.begin(), schedule.end(), [&](const auto& change) {
    return change.epoch > behind || change.epoch >= put_off;
  });
  schedule.erase(schedule.begin(), stays);
}

Expected<void> add_schedule(TrainJob& job) {
  const std::string& path = job.options.schedule;
  if (path.empty() || !job.is_head()) return {};
  auto schedule = read_schedule(path);
  if (!schedule) return schedule.error();
  const Plan& begun = job.run.parts->plan;
  if (!changes_members(begun)) return bad_input("--schedule " + path + ": " + kDoesNotChange);
  if (job.run.resume) erase_done(*schedule, *job.run.resume, job.run.workers());
  LiveSettings settings;
  for (const ScheduledChange& change : *schedule) {
    const std::string where = "--schedule " + path + ": epoch " + number_text(change.epoch) + ": ";
    settings = with_settings(std::move(settings), change.changed);
    const auto parts = job.run.change(settings);
    if (!parts) return bad_input(where + parts.error().message);
    if (!changes_members((*parts)->plan)) return bad_input(where + kDoesNotCome);
    const std::int32_t servers = (*parts)->plan.servers;
    const std::int32_t room = job.run.world_size() - job.run.workers();
    if (changes_wiring(change.changed) && servers > room)
      return bad_input(where + std::to_string(servers) +
                       " parameter servers do not come into a running job, which has room for " +
                       std::to_string(room));
  }
  job.run.schedule = *std::move(schedule);
  return {};
}

}  // namespace grapevine
