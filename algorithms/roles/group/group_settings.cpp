// The keys of the group role, and its entry in the list of roles.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "algorithms/roles/group/group.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {
namespace {

void read_group(KeyReader& keys, Plan& plan) {
  auto group = std::make_shared<GroupSettings>();
  read_mixed(keys, plan.local, "exchange = 'group': groups average models");
  group->activation = read_activation(keys, "solo");
  group->staleness = read_counts(keys, "staleness", "10", 1,
                                 "tau: exchanges from one global average to the next, by epoch");
  group->group_size = static_cast<std::int32_t>(keys.whole(
      "group_size", 0, 1, "ranks that average, at most; about the root of all by default",
      std::numeric_limits<Rank>::max()));
  group->grouping = keys.choice<Grouping>(
      "groups", "drawn", {{"drawn", Grouping::drawn}, {"grid", Grouping::grid}},
      "groups of a butterfly or drawn anew at each exchange, or the lines of a grid, axis by axis");
  plan.local.steps = read_local_steps(keys);
  plan.local.clip = read_clip(keys, false);
  CompressionUse use;
  use.whole_models = true;
  plan.compression = read_compression(keys, use);
  plan.settings = std::move(group);
}

Expected<void> prepare_group(SharedParts& parts, std::int32_t ranks) {
  const auto& settings = data_as<GroupSettings>(parts.plan.settings);
  // Fewer ranks than were planned with form smaller groups.
  const bool fewer = parts.horizon.members_have_changed();
  const std::int32_t size = fewer ? std::min(settings.group_size, ranks) : settings.group_size;
  auto groups = GroupSchedule::make(settings.grouping, ranks, size, parts.plan.seed);
  if (!groups) return groups.error();
  const auto fits = check_quorum(settings.activation, groups->group_size());
  if (!fits && !fewer) return fits;
  parts.prepared = std::make_shared<Groups>(*groups);
  return {};
}

}  // namespace

const RoleType& group_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "group";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "ranks average their models in small groups that change at each step";
    role.read = &read_group;
    role.prepare = &prepare_group;
    role.make = &make_from_context<Group>;
    role.changes_members = [](const Plan&) { return true; };
    role.announces_end = [](const Plan&) { return true; };
    // Every average is a global one, of fresh models.
    role.synchronous = role.ranks_agree = [](const Plan& plan) {
      return data_as<GroupSettings>(plan.settings).staleness.most() == 1;
    };
    return role;
  }();
  return type;
}

}  // namespace grapevine
