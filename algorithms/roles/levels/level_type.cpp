// The plan of levels, what their ranks share, and their entry as a role.
#include <algorithm>
#include <cmath>
#include <utility>

#include "algorithms/roles/levels/level.hpp"
#include "algorithms/wiring/shared_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// Periods have one length but for the last, which ends with the run. Where the exchanges inside
// have one, too, the first period stands for all: a run may have very many.
Expected<void> check_nesting(const ExchangeSteps& periods, const SharedParts& inside) {
  const ExchangeSteps& exchanges = inside.exchanges;
  const bool one_length = exchanges.mean_local_steps() == static_cast<double>(exchanges.longest());
  const std::int64_t differing =
      one_length ? std::min<std::int64_t>(1, periods.count()) : periods.count();
  for (std::int64_t i = 0; i < differing; ++i) {
    if (exchanges.due(periods.end_of(i))) continue;
    return bad_input("wiring.local_steps = " + std::to_string(periods.longest()) +
                     " of a level around another does not fit the level inside: after " +
                     std::to_string(periods.end_of(i)) +
                     " steps its groups would exchange amid the local steps of their ranks, choose "
                     "a multiple of the local_steps inside");
  }
  return {};
}

// The schedules of the role outside count periods.
Expected<void> check_lengths(const LocalSteps& steps) {
  if (!steps.changes()) return {};
  return bad_input(
      "wiring.local_steps by epoch, or qsr, does not fit a level around another, which takes them "
      "from the level inside where it has none: its epochs are counted in periods, which must have "
      "one length, give the level around a whole number");
}

Expected<std::shared_ptr<const SharedParts>> parts_inside(const SharedParts& parts) {
  Plan plan = data_as<LevelSettings>(parts.plan.settings).inside;
  plan.seed = parts.plan.seed;
  if (plan.compression.per_layer) plan.compression.layers = parts.plan.compression.layers;
  return make_parts(plan, parts.horizon, parts.lr, parts.optimizer, parts.plan.hierarchy,
                    parts.layout);
}

// In periods. Where the numbers of a run that continues changed amid a period: from the next one.
Horizon in_periods(const Horizon& steps, const ExchangeSteps& exchanges) {
  const double length = exchanges.mean_local_steps();
  const double behind = std::ceil(static_cast<double>(steps.first_step) / length);
  Horizon periods;
  periods.steps = exchanges.count();
  periods.steps_per_epoch = steps.steps_per_epoch / length;
  periods.first_step = static_cast<Step>(behind);
  periods.first_epoch = steps.epoch_at(behind * length);
  return periods;
}

// A step of the role outside is a period, and its rate 1.
Expected<std::shared_ptr<const SharedParts>> parts_outside(const SharedParts& parts,
                                                           std::int32_t groups) {
  Plan plan = data_as<LevelSettings>(parts.plan.settings).outside;
  plan.seed = parts.plan.seed;
  plan.local.steps = LocalSteps();
  if (plan.compression.per_layer) plan.compression.layers = parts.plan.compression.layers;
  LrConfig rate;
  rate.lr = 1;
  return make_parts(plan, in_periods(parts.horizon, parts.exchanges), *LrSchedule::make(rate),
                    OptimizerConfig(), groups, parts.layout);
}

Expected<void> prepare_levels(SharedParts& parts, std::int32_t groups) {
  if (auto fits = check_lengths(parts.plan.local.steps); !fits) return fits;
  auto inside = parts_inside(parts);
  if (!inside) return inside.error();
  auto outside = parts_outside(parts, groups);
  if (!outside) return outside.error();
  if (auto fits = check_nesting(parts.exchanges, **inside); !fits) return fits;
  parts.graph = (*outside)->graph;
  parts.prepared = std::make_shared<LevelParts>(*std::move(inside), *std::move(outside));
  return {};
}

std::unique_ptr<Role> make_server_of_levels(ServerContext context) {
  context.parts = data_as<LevelParts>(context.parts->prepared).outside;
  const RoleType& role = *context.parts->plan.role;
  return role.make_server(std::move(context));
}

const RoleType& level_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "levels";
    role.summary = "groups of ranks exchange as one rank does";
    role.prepare = &prepare_levels;
    role.make = [](RoleContext context) { return std::make_unique<Level>(std::move(context)); };
    role.make_server = &make_server_of_levels;
    role.allows_ranks_past_the_end = false;
    role.announces_end = [](const Plan&) { return true; };
    role.uses_momentum = [](const Plan& plan) {
      const Plan& inside = data_as<LevelSettings>(plan.settings).inside;
      return inside.role->uses_momentum(inside);
    };
    role.any_device = [](const Plan& plan) {
      const auto& levels = data_as<LevelSettings>(plan.settings);
      return levels.inside.role->any_device(levels.inside) &&
             levels.outside.role->any_device(levels.outside);
    };
    role.synchronous = [](const Plan& plan) {
      const Plan& outside = data_as<LevelSettings>(plan.settings).outside;
      return outside.role->synchronous(outside);
    };
    role.ranks_agree = [](const Plan& plan) {
      const Plan& outside = data_as<LevelSettings>(plan.settings).outside;
      return outside.role->ranks_agree(outside);
    };
    role.parts_inside = [](const SharedParts& parts) {
      const auto& levels = data_as<LevelParts>(parts.prepared);
      return std::vector<std::shared_ptr<const SharedParts>>{levels.inside, levels.outside};
    };
    return role;
  }();
  return type;
}

}  // namespace

Plan nest(const Plan& inside, std::int32_t ranks, const Plan& outside) {
  GRAPEVINE_CHECK(inside.role->synchronous(inside), "ranks would not end a period together");
  GRAPEVINE_CHECK(outside.role->plans_each_rank && !outside.role->drops_gradients(outside),
                  "periods would have no account");
  auto settings = std::make_shared<LevelSettings>();
  settings->inside = inside;
  settings->outside = outside;
  settings->depth =
      inside.role == &level_role() ? data_as<LevelSettings>(inside.settings).depth + 1 : 0;
  GRAPEVINE_CHECK(settings->depth < kLevelTags, "more than ", kLevelTags, " levels");
  Plan plan;
  plan.role = &level_role();
  plan.graph = outside.graph;
  plan.local.steps = outside.local.steps;
  plan.compression.per_layer = inside.compression.per_layer || outside.compression.per_layer;
  plan.servers = outside.servers;
  plan.hierarchy = ranks;
  plan.settings = std::move(settings);
  return plan;
}

}  // namespace grapevine
