// The keys of the bilateral role, and its entry in the list of roles.
#include <memory>
#include <utility>

#include "algorithms/roles/bilateral/bilateral.hpp"
#include "algorithms/wiring/make_parts.hpp"

namespace grapevine {
namespace {

void read_bilateral(KeyReader& keys, Plan& plan) {
  read_mixed(keys, plan.local, "exchange = 'bilateral': pairs average models");
  plan.graph = read_graph(keys);
  plan.local.steps = read_local_steps(keys);
  plan.local.clip = read_clip(keys, false);
  CompressionUse use;
  use.mixes = true;
  plan.compression = read_compression(keys, use);
}

Expected<void> prepare_bilateral(SharedParts& parts, std::int32_t ranks) {
  if (auto made = make_graph(parts, ranks); !made) return made;
  auto sides = parts.graph->bipartition();
  if (!sides)
    return bad_input("exchange = 'bilateral' pairs ranks that ask with ranks that answer: " +
                     sides.error().message);
  auto prepared = std::make_shared<BilateralSides>();
  prepared->active = std::move(*sides);
  parts.prepared = std::move(prepared);
  return {};
}

}  // namespace

const RoleType& bilateral_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "bilateral";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "pairs of ranks move their models to the middle beside the workers";
    role.read = &read_bilateral;
    role.prepare = &prepare_bilateral;
    role.make = &make_from_context<Bilateral>;
    role.plans_each_rank = false;
    role.counts_own_steps = false;
    role.changes_members = [](const Plan&) { return true; };
    role.exchanges_at_the_end = false;
    role.gradient_sums = [](const Plan&) { return GradientSums::sums; };
    return role;
  }();
  return type;
}

}  // namespace grapevine
