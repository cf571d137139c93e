#include "algorithms/compressors/error_feedback.hpp"

#include <ATen/ATen.h>

#include "algorithms/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

Packed ErrorFeedback::pack(at::Tensor& g, const Compressor& compressor, double epoch, Rng& rng) {
  if (!settings_.enabled) return compressor.pack(g, epoch, rng);
  accumulate(g);
  Packed sent = compressor.pack(residual_, epoch, rng);
  const auto taken = compressor.fold(residual_, sent, -1);
  GRAPEVINE_CHECK(taken.ok(), taken.error().message);
  if (velocity_.defined() && settings_.masking && compressor.sparse()) {
    const auto entries = from_packed(sent, residual_.numel());
    GRAPEVINE_CHECK(entries.ok(), entries.error().message);
    clear_entries(velocity_, *entries);
  }
  return sent;
}

// e <- e + what this step adds.
void ErrorFeedback::accumulate(at::Tensor& g) {
  if (!residual_.defined()) residual_ = at::zeros_like(g);
  if (settings_.momentum == 0) return kernels::fold(residual_, g);
  if (!velocity_.defined()) velocity_ = at::zeros_like(g);
  if (settings_.nesterov) {
    velocity_.add_(g).mul_(settings_.momentum);
    kernels::fold(residual_, g);
  } else {
    velocity_.mul_(settings_.momentum).add_(g);
  }
  kernels::fold(residual_, velocity_);
}

void ErrorFeedback::restore(const SparseVector& rejected) {
  if (settings_.enabled) add_entries(residual_, rejected, 1);
}

void ErrorFeedback::give_back(const Packed& packed, const Compressor& compressor) {
  if (!settings_.enabled) return;
  const auto returned = compressor.fold(residual_, packed, 1);
  GRAPEVINE_CHECK(returned.ok(), returned.error().message);
}

StateDict ErrorFeedback::save() const {
  StateDict state;
  if (residual_.defined()) state.put("residual", residual_.clone());
  if (velocity_.defined()) state.put("velocity", velocity_.clone());
  return state;
}

Expected<void> ErrorFeedback::load(const StateDict& state, std::int64_t d) {
  at::Tensor loaded[2];
  const char* const names[] = {"residual", "velocity"};
  for (int i = 0; i < 2; ++i) {
    if (state.entries().count(names[i]) == 0) continue;
    auto tensor = state.flat_tensor(names[i], d);
    if (!tensor) return tensor.error();
    loaded[i] = tensor->clone();
  }
  residual_ = loaded[0];
  velocity_ = loaded[1];
  return {};
}

}  // namespace grapevine
