#include "algorithms/roles/gossip/running_sum.hpp"

#include <ATen/ATen.h>

#include <utility>
#include <variant>

namespace grapevine {

const Share* RunningSum::in(const Payload& payload) {
  const auto* share = std::get_if<Share>(&payload);
  const bool is_sum = share != nullptr && share->x.defined() && share->x.dtype() == at::kDouble;
  return is_sum ? share : nullptr;
}

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
