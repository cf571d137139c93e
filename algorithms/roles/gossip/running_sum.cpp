#include "algorithms/roles/gossip/running_sum.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace grapevine {

bool RunningSum::fits(const FrozenTensor& x, const FrozenTensor& model) {
  return x.defined() && x.dtype() == at::kDouble && x.sizes() == model.sizes();
}

void RunningSum::add(const ShareSplit::Gift& gift) {
  at::Tensor sum;
  if (!x.defined())
    sum = gift.x.read().to(at::kDouble);
  else if (x.sole_owner())
    sum = std::move(x).thaw().add_(gift.x.read());
  else
    sum = at::add(x.read(), gift.x.read());
  x = FrozenTensor::freeze(std::move(sum));
  w += gift.w;
}

void RunningSum::fields(Archive& a, const FrozenTensor& model) {
  a.number("w", w);
  a.values("x", x);
  a.require(fits(x, model) && w > 0, "x", "is not a running sum of this model's shares");
}

}  // namespace grapevine
