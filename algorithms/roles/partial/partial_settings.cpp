// The keys of the partial role, and its entry in the list of roles.
#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "algorithms/roles/partial/partial.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {
namespace {

void read_partial(KeyReader& keys, Plan& plan) {
  auto partial = std::make_shared<PartialSettings>();
  using Scale = PartialSettings::Scale;
  plan.local.pack = read_pack(keys, {Pack::gradient, Pack::difference},
                              "exchange = 'partial': a partial sum of models would be no mean");
  partial->activation = read_activation(keys, "majority");
  partial->staleness =
      read_counts(keys, "staleness", "10", 0, "tau: rounds that a gradient may be old, by epoch");
  keys.where("pack", "difference", [&] {
    plan.local.steps = read_local_steps(keys);
    read_outer(keys, plan.local);
    plan.local.clip = read_clip(keys, false);
  });
  keys.where("pack", "gradient", [&] { plan.local.clip = read_clip(keys, true); });
  CompressionUse use;
  use.sums = true;
  plan.compression = read_compression(keys, use);
  partial->scale = keys.choice<Scale>(
      "scale", "ranks",
      {{"ranks", Scale::ranks}, {"active", Scale::active}, {"samples", Scale::samples}},
      "what a partial sum is divided by: all ranks, those in it, or the gradients in it");
  const bool keeps_residual = plan.compression.enabled() && plan.compression.error_feedback;
  keys.only_where("scale", partial->scale == Scale::ranks || !keeps_residual,
                  "compress = '" + plan.compression.name +
                      "': ranks without a gradient still send what was left over, choose scale = "
                      "'ranks'");
  plan.settings = std::move(partial);
}

// Once ranks are lost, a quorum of more ranks than there are is one of all.
Expected<void> prepare_partial(SharedParts& parts, std::int32_t ranks) {
  if (parts.horizon.members_have_changed()) return {};
  return check_quorum(data_as<PartialSettings>(parts.plan.settings).activation, ranks);
}

}  // namespace

double PartialSettings::divisor(const std::vector<std::int64_t>& tally,
                                std::int64_t local_steps) const {
  const auto active = [](std::int64_t gradients) { return gradients > 0; };
  if (scale == Scale::ranks) return static_cast<double>(tally.size());
  if (scale == Scale::active)
    return static_cast<double>(std::count_if(tally.begin(), tally.end(), active));
  return static_cast<double>(std::accumulate(tally.begin(), tally.end(), std::int64_t{0})) /
         static_cast<double>(local_steps);
}

const RoleType& partial_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "partial";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "ranks sum the gradients that they have, without waiting for the others";
    role.read = &read_partial;
    role.prepare = &prepare_partial;
    role.make = &make_from_context<Partial>;
    role.counts_own_steps = false;
    role.changes_members = [](const Plan&) { return true; };
    role.replicates = true;
    role.announces_end = [](const Plan& plan) {
      return data_as<PartialSettings>(plan.settings).staleness.most() > 0;
    };
    role.gradient_sums = [](const Plan& plan) {
      const bool by_ranks =
          data_as<PartialSettings>(plan.settings).scale == PartialSettings::Scale::ranks;
      return by_ranks && plan.local.pack == Pack::gradient ? GradientSums::sums
                                                           : GradientSums::unknown;
    };
    return role;
  }();
  return type;
}

}  // namespace grapevine
