#include "algorithms/compressors/error_feedback.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

Packed ErrorFeedback::pack(at::Tensor& g, const Compressor& compressor, double epoch, Rng& rng) {
  if (!settings_.enabled) return compressor.pack(g, epoch, rng);
  if (g.defined()) accumulate(g);
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

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The entries of a that b has with the same value. b has another value for an entry that was only
// rounded.
SparseVector same_entries(const SparseVector& a, const SparseVector& b) {
  const SparseVector common = intersect(a, b, true), there = intersect(b, a, true);
  SparseVector same;
  for (std::size_t i = 0; i < common.indices.size(); ++i)
    if (bits_of(common.values[i]) == bits_of(there.values[i]))
      same.add(common.indices[i], common.values[i]);
  return same;
}

}  // namespace

void ErrorFeedback::restore(const SparseVector& rejected,
                            const std::optional<SparseVector>& selected) {
  if (!settings_.enabled) return;
  if (rejected.size() > 0) add_entries(residual_, rejected, 1);
  const SparseVector sent = std::exchange(sent_, {});
  if (sent.size() == 0) return;
  const SparseVector in_result = selected ? intersect(sent, *selected, true) : sent;
  clear_entries(velocity_, intersect(in_result, same_entries(sent, rejected), false));
}

void ErrorFeedback::give_back(const Packed& packed, const Compressor& compressor) {
  if (!settings_.enabled) return;
  const auto returned = compressor.fold(residual_, packed, 1);
  GRAPEVINE_CHECK(returned.ok(), returned.error().message);
  sent_ = {};  // they keep their momentum
}

void ErrorFeedback::fields(Archive& a, std::int64_t d) {
  a.vector("residual", residual_, d);
  a.vector("velocity", velocity_, d);
  if (a.loads()) sent_ = {};
  if (a.has("sent.indices", sent_.size() > 0)) sent_fields(a, d);
  if (sent_.size() > 0 && !velocity_.defined())
    a.fail(bad_input(
        "the saved state has entries that were sent and no momentum: the checkpoint is damaged, "
        "resume from another one"));
}

void ErrorFeedback::sent_fields(Archive& a, std::int64_t d) {
  auto& [indices, values] = sent_;
  at::Tensor numbers = at::tensor(values, at::kFloat);
  a.list("sent.indices", indices, 0, d - 1);
  a.needs("sent.values");
  a.on_host([&](Archive& host) {
    host.vector("sent.values", numbers, static_cast<std::int64_t>(sent_.size()));
  });
  a.require(
      std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end(),
      "sent.indices", "does not ascend");
  if (!a.loads() || !a.ok()) return;
  const auto* data = numbers.data_ptr<float>();
  values.assign(data, data + numbers.numel());
}

}  // namespace grapevine
