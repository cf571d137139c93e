#include "algorithms/collectives/lending_vector.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine {

void LendingVector::write(const PieceBounds& piece, FrozenTensor sum) {
  waiting_.push_back({piece, std::move(sum)});
  write_waiting();
}

void LendingVector::write_waiting() {
  const auto written = [this](const Waiting& next) {
    if (!lent_.take_back(next.piece.begin)) return false;
    at::Tensor place = at(next.piece);
    kernels::copy(place, next.sum.read());
    return true;
  };
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), written), waiting_.end());
}

void LendingVector::complete() {
  write_waiting();
  if (waiting_.empty()) return;
  values_ = copy_to_send(values_);
  lent_.clear();
  write_waiting();
}

at::Tensor LendingVector::take() {
  complete();
  return std::exchange(values_, at::Tensor());
}

}  // namespace grapevine
