#include "algorithms/compressors/error_feedback.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

Packed ErrorFeedback::pack(at::Tensor& g, const Compressor& compressor, double epoch, Rng& rng) {
  if (!settings_.enabled) return compressor.pack(g, epoch, rng);
  accumulate(g);
  Packed sent = compressor.pack(residual_, epoch, rng);
  const auto taken = compressor.fold(residual_, sent, -1);
  GRAPEVINE_CHECK(taken.ok(), taken.error().message);
  if (velocity_.defined() && settings_.masking && compressor.sparse()) {
    auto entries = from_packed(sent, residual_.numel());
    GRAPEVINE_CHECK(entries.ok(), entries.error().message);
    sent_ = std::move(*entries);
  }
  return sent;
}

// e <- e + the update of this step.
void ErrorFeedback::accumulate(at::Tensor& g) {
  if (!residual_.defined()) residual_ = at::zeros_like(g);
  if (settings_.decay != 1) residual_.mul_(settings_.decay);
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

namespace {

// The entries of a that b has with the same value. b has another value for an entry that was only
// rounded.
SparseVector same_entries(const SparseVector& a, const SparseVector& b) {
  const SparseVector common = intersect(a, b, true), there = intersect(b, a, true);
  SparseVector same;
  for (std::size_t i = 0; i < common.indices.size(); ++i)
    if (std::memcmp(&common.values[i], &there.values[i], sizeof(float)) == 0)
      same.add(common.indices[i], common.values[i]);
  return same;
}

}  // namespace

void ErrorFeedback::restore(const SparseVector& rejected,
                            const std::optional<SparseVector>& selected) {
  if (!settings_.enabled) return;
  add_entries(residual_, rejected, 1);
  const SparseVector sent = std::exchange(sent_, {});
  if (sent.size() == 0) return;
  const SparseVector in_result = selected ? intersect(sent, *selected, true) : sent;
  clear_entries(velocity_, intersect(in_result, same_entries(sent, rejected), false));
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
  if (sent_.size() > 0) {
    state.put_list("sent.indices", {sent_.indices.begin(), sent_.indices.end()});
    state.put("sent.values", at::tensor(sent_.values, at::kFloat));
  }
  return state;
}

Expected<SparseVector> ErrorFeedback::load_sent(const StateDict& state, std::int64_t d) const {
  SparseVector sent;
  if (state.entries().count("sent.indices") == 0) return sent;
  const auto indices = state.list("sent.indices");
  if (!indices) return indices.error();
  const auto values = state.flat_tensor("sent.values", static_cast<std::int64_t>(indices->size()));
  if (!values) return values.error();
  std::int64_t last = -1;
  for (std::size_t i = 0; i < indices->size(); ++i) {
    const std::int64_t index = (*indices)[i];
    if (index <= last || index >= d)
      return bad_input(
          "entry 'sent.indices' of the saved state does not ascend below the model's size: the "
          "checkpoint is damaged, resume from another one");
    sent.add(static_cast<std::uint32_t>(index), values->data_ptr<float>()[i]);
    last = index;
  }
  return sent;
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
  auto sent = load_sent(state, d);
  if (!sent) return sent.error();
  if (sent->size() > 0 && !loaded[1].defined())
    return bad_input(
        "the saved state has entries that were sent and no momentum: the checkpoint is damaged, "
        "resume from another one");
  residual_ = loaded[0];
  velocity_ = loaded[1];
  sent_ = std::move(*sent);
  return {};
}

}  // namespace grapevine
