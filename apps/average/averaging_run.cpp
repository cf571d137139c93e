#include "apps/average/averaging_run.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace grapevine {
namespace {

Lockstep::OnMessage carried_by(LossyWire* wire) {
  if (wire == nullptr) return nullptr;
  return [wire](const Envelope& message) { return wire->carry(message); };
}

}  // namespace

AveragingRun::AveragingRun(const std::shared_ptr<const SharedParts>& parts, std::int32_t ranks,
                           std::int64_t dim)
    : AveragingRun(parts, ranks, dim, at::kFloat, nullptr) {}

AveragingRun::AveragingRun(const std::shared_ptr<const SharedParts>& parts, std::int32_t ranks,
                           std::int64_t dim, const LossyAveraging& averaging)
    : AveragingRun(parts, ranks, dim, at::kDouble, std::make_unique<LossyWire>(averaging)) {}

AveragingRun::AveragingRun(const std::shared_ptr<const SharedParts>& parts, std::int32_t ranks,
                           std::int64_t dim, at::ScalarType type, std::unique_ptr<LossyWire> wire)
    : ranks_(ranks),
      wire_(std::move(wire)),
      world_(
          parts, ranks, [=](Rank rank) { return at::full({dim}, rank, type); },
          [](Rank, Step, const at::Tensor& z) { return at::zeros_like(z); },
          carried_by(wire_.get())) {}

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
  }
  if (wire_) report.weight_sum += wire_->owed_weight();
  return report;
}

}  // namespace grapevine
