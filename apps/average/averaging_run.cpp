#include "apps/average/averaging_run.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "algorithms/roles/gossip/gossip.hpp"

namespace grapevine {
namespace {

Lockstep::OnMessage carried_by(std::optional<LossyWire>& wire) {
  if (!wire) return nullptr;
  return [&wire](const Envelope&) { return wire->carries(); };
}

bool has_running_sums(const Plan& plan) {
  const auto* gossip = dynamic_cast<const GossipSettings*>(plan.settings.get());
  return gossip != nullptr && gossip->running_sums;
}

}  // namespace

AveragingRun::AveragingRun(const std::shared_ptr<const SharedParts>& parts, std::int32_t ranks,
                           std::int64_t dim, const std::optional<LossyWire>& wire,
                           at::ScalarType type)
    : ranks_(ranks),
      has_sums_(has_running_sums(parts->plan)),
      wire_(wire),
      world_(
          parts, ranks, [=](Rank rank) { return at::full({dim}, rank, type); },
          [](Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }, carried_by(wire_)) {}

void AveragingRun::advance() {
  world_.sweep();
  ++round_;
}

AveragingReport AveragingRun::report() const {
  const double true_mean = (ranks_ - 1) / 2.0;
  AveragingReport report;
  report.round = round_;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const at::Tensor z = world_.role(rank).debiased().read().to(at::kDouble);
    report.mean += z[0].item<double>() / ranks_;
    // A NaN is never replaced.
    const double deviation = (z - true_mean).abs().max().item<double>();
    if (!(deviation <= report.max_deviation) && !std::isnan(report.max_deviation))
      report.max_deviation = deviation;
    report.weight_sum += world_.model(rank).w;
    if (has_sums_) report.weight_sum += owed_mass(world_.role(rank).save()).w;
  }
  return report;
}

}  // namespace grapevine
