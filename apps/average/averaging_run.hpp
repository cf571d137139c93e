// AveragingRun: ranks that hold one value each agree on the mean, without a model: the roles of a
// wiring in lockstep, with gradients of zero.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "algorithms/lockstep/lockstep.hpp"
#include "apps/average/lossy_ranks.hpp"

namespace grapevine {

struct AveragingReport {
  std::int64_t round = 0;    // rounds done
  double mean = 0;           // over ranks, of the estimates' coordinate 0
  double max_deviation = 0;  // over ranks and coordinates, of |estimate - mean of the start|
  double weight_sum = 0;     // over ranks, with the weight that running sums owe
};

// Rank i starts with the value i in each of `dim` coordinates. Same arguments, same numbers. Not
// thread-safe.
class AveragingRun {
 public:
  // `ranks`: those that train; `parts` were made for them. `wire`: none: no message is lost.
  // `type`: of the values, float64 where `parts` are from make_lossy_parts.
  AveragingRun(const std::shared_ptr<const SharedParts>& parts, std::int32_t ranks,
               std::int64_t dim, const std::optional<LossyWire>& wire = std::nullopt,
               at::ScalarType type = at::kFloat);

  // A gradient of zero for every rank that asks for one, and all messages that follow.
  void advance();
  AveragingReport report() const;

 private:
  const std::int32_t ranks_;
  const bool has_sums_;
  std::int64_t round_ = 0;
  std::optional<LossyWire> wire_;
  Lockstep world_;
};

}  // namespace grapevine
