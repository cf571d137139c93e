// GradientTracker: an estimate of the mean gradient of all ranks, which ranks mix with their
// models.
//
// Source: gradient tracking: Di Lorenzo & Scutari 2016; with push-sum Nedic, Olshevsky, Shi 2017
// (push-DIGing). y_0 = g_0;  y <- W y + g(x_new) - g(x). A part.
// Conservation: the sum of y over all ranks, and over shares in flight, is that of the newest g, as
//   long as no rank dies: its y is lost, and the others keep what it had given.
#pragma once
#include <ATen/core/Tensor.h>

#include "algorithms/archive.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role. Memory: 2 d floats.
class GradientTracker {
 public:
  // A new gradient, [d]; its memory is kept. Returns y, [d].
  const at::Tensor& add(at::Tensor gradient);
  const at::Tensor& estimate() const { return y_; }
  // y after a round of mixing, [d].
  void take_mixed(at::Tensor y) { y_ = std::move(y); }
  void fields(Archive& a, std::int64_t d);

 private:
  at::Tensor y_, newest_;  // [d]; undefined before the first gradient
};

}  // namespace grapevine
