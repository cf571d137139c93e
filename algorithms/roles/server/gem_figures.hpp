// GemFigures: figures of a client of gradient energy matching, from a few exchanges of each tenth
// of the run (Hermans & Louppe 2018, section 4). All figures are sums.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "algorithms/parts/server_rules.hpp"
#include "algorithms/state_dict.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// Not thread-safe.
class GemFigures {
 public:
  // `layout` outlives this. `steps`: of the run.
  GemFigures(const std::vector<TensorSpan>& layout, std::int32_t servers, Step steps)
      : layout_(layout), servers_(servers), steps_(steps), pi_medians_(layout.size(), 0) {}

  // An exchange of `delta` begins; it may be one that is measured.
  void begin(Step step, const at::Tensor& delta);
  bool measuring() const { return pi_.defined(); }
  // One server's slice of the exchange: theta as granted, s, m and delta of the client, u = pi
  // delta. REQUIRES: measuring().
  void add(const Slice& slice, const at::Tensor& theta, const at::Tensor& s, const at::Tensor& m,
           const at::Tensor& delta, const at::Tensor& u);

  // proxy_energy, central_energy, energy_samples by tenths; pi_medians by tensor of the layout,
  // pi_samples.
  StateDict measures() const;

 private:
  static constexpr std::int64_t kTenths = 10;

  const std::vector<TensorSpan>& layout_;
  const std::int32_t servers_;
  const Step steps_;

  std::array<double, kTenths> proxy_energy_{}, central_energy_{}, samples_{};
  std::vector<double> pi_medians_;
  double pi_samples_ = 0;

  // Of the exchange that is measured.
  at::Tensor pi_;  // [d]
  std::size_t tenth_ = 0;
  std::int32_t missing_ = 0;  // slices
};

}  // namespace grapevine
