// The plan of levels, what their ranks share, and their entry as a role.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/roles/levels/level.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "messages/check.hpp"

namespace grapevine {

const LevelGroup& LevelParts::group_of(Rank rank) const {
  const auto next =
      std::upper_bound(groups.begin(), groups.end(), rank,
                       [](Rank r, const LevelGroup& group) { return r < group.head; });
  GRAPEVINE_CHECK(next != groups.begin(), "rank ", rank, " is in no group");
  return *std::prev(next);
}

bool LevelParts::heads_agree() const {
  const RoleType& role = *outside->plan.role;
  return role.replicates && role.ranks_agree(outside->plan);
}

double LevelParts::mean_size() const {
  std::int64_t ranks = 0;
  for (const LevelGroup& group : groups) ranks += group.size;
  return static_cast<double>(ranks) / static_cast<double>(groups.size());
}

std::vector<Rank> LevelParts::heads() const {
  std::vector<Rank> heads;
  for (const LevelGroup& group : groups) heads.push_back(group.head);
  return heads;
}

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

// `ranks`: of one group, by their places in it at the start.
Expected<std::shared_ptr<const SharedParts>> parts_inside(const SharedParts& parts,
                                                          const std::vector<Rank>& ranks) {
  Plan plan = data_as<LevelSettings>(parts.plan.settings).inside;
  plan.seed = parts.plan.seed;
  if (plan.compression.per_layer) plan.compression.layers = parts.plan.compression.layers;
  const auto count = static_cast<std::int32_t>(ranks.size());
  if (plan.role->parts_inside && count < parts.plan.hierarchy)
    return make_parts_of_remaining(plan, parts.horizon, parts.lr, parts.optimizer, ranks,
                                   parts.layout);
  return make_parts(plan, parts.horizon, parts.lr, parts.optimizer, count, parts.layout);
}

// Groups whose ranks are the same ones of theirs share what is inside.
Expected<std::vector<LevelGroup>> make_groups(const SharedParts& parts,
                                              const std::vector<Rank>& ranks) {
  const std::int32_t size = parts.plan.hierarchy;
  std::vector<LevelGroup> groups;
  std::map<std::vector<Rank>, std::shared_ptr<const SharedParts>> made;
  Rank head = 0;
  for (const Rank first : first_of_each_node(ranks, size)) {
    std::vector<Rank> group = members_of_node(ranks, first, size);
    for (Rank& rank : group) rank %= size;
    std::shared_ptr<const SharedParts>& inside = made[group];
    if (!inside) {
      auto parts_of_group = parts_inside(parts, group);
      if (!parts_of_group) return parts_of_group.error();
      inside = *std::move(parts_of_group);
    }
    const auto count = static_cast<std::int32_t>(group.size());
    groups.push_back({head, count, inside});
    head += count;
  }
  return groups;
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
  auto inside = make_groups(
      parts, parts.remaining.empty() ? all_ranks(groups * parts.plan.hierarchy) : parts.remaining);
  if (!inside) return inside.error();
  auto outside = parts_outside(parts, groups);
  if (!outside) return outside.error();
  if (auto fits = check_nesting(parts.exchanges, *inside->front().inside); !fits) return fits;
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
    role.changes_by_mean = true;
    role.changes_members = [](const Plan& plan) {
      const auto& levels = data_as<LevelSettings>(plan.settings);
      return plan.servers == 0 && changes_members(levels.inside) && changes_members(levels.outside);
    };
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
    role.sent_weight = [](const Plan& plan) {
      const Plan& outside = data_as<LevelSettings>(plan.settings).outside;
      return outside.role->sent_weight(outside);
    };
    role.parts_inside = [](const SharedParts& parts) {
      const auto& levels = data_as<LevelParts>(parts.prepared);
      return std::vector<std::shared_ptr<const SharedParts>>{levels.groups.front().inside,
                                                             levels.outside};
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
