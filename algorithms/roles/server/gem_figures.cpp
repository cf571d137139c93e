#include "algorithms/roles/server/gem_figures.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace grapevine {
namespace {

constexpr Step kMeasurementsPerTenth = 4;

double energy(const at::Tensor& t) { return 0.5 * t.square().sum(at::kDouble).item<double>(); }

}  // namespace

void GemFigures::begin(Step step, const at::Tensor& delta) {
  pi_ = at::Tensor();
  if (step % std::max<Step>(1, steps_ / kTenths / kMeasurementsPerTenth) != 0) return;
  pi_ = at::empty_like(delta);
  tenth_ =
      static_cast<std::size_t>(std::min(kTenths - 1, step * kTenths / std::max<Step>(1, steps_)));
  missing_ = servers_;
  samples_[tenth_] += 1;
}

// Energies: proxy 1/2 |m|^2, central variable 1/2 |theta - s + u|^2. Medians are over the elements
// of a tensor whose delta is not 0.
void GemFigures::add(const Slice& slice, const at::Tensor& theta, const at::Tensor& s,
                     const at::Tensor& m, const at::Tensor& delta, const at::Tensor& u) {
  proxy_energy_[tenth_] += energy(m);
  central_energy_[tenth_] += energy(theta - s + u);
  pi_.narrow(0, slice.begin, slice.size).copy_(u / delta);
  if (--missing_ > 0) return;
  pi_samples_ += 1;
  for (std::size_t i = 0; i < pi_medians_.size(); ++i) {
    const TensorSpan& span = layout_[i];
    const auto value = pi_.narrow(0, span.begin, span.size).nanmedian().item<double>();
    if (std::isfinite(value)) pi_medians_[i] += value;
  }
  pi_ = at::Tensor();
}

StateDict GemFigures::measures() const {
  StateDict state;
  const auto list = [](const auto& values) {
    return at::tensor(std::vector<double>(values.begin(), values.end()), at::kDouble);
  };
  state.put("proxy_energy", list(proxy_energy_));
  state.put("central_energy", list(central_energy_));
  state.put("energy_samples", list(samples_));
  state.put("pi_medians", list(pi_medians_));
  state.put("pi_samples", pi_samples_);
  return state;
}

}  // namespace grapevine
