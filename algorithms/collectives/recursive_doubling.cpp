#include "algorithms/collectives/recursive_doubling.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// Floats without ATen's dispatcher, which takes longer than the sum of a short vector.
void add(at::Tensor& sum, const at::Tensor& more) {
  if (sum.scalar_type() == at::kFloat) return kernels::fold(sum, more);
  sum.add_(more);
}

}  // namespace

RecursiveDoubling::RecursiveDoubling(std::vector<Rank> ranks, std::int32_t position,
                                     std::int64_t operation, RecycledMemory memory)
    : ranks_(std::move(ranks)),
      position_(position),
      operation_(operation),
      memory_(std::move(memory)) {
  GRAPEVINE_CHECK(position_ >= 0 && position_ < size(), "position ", position_, " among ", size());
  while (2 * core_ <= size()) {
    core_ *= 2;
    ++levels_;
  }
}

std::vector<OutgoingChunk> RecursiveDoubling::start(at::Tensor&& input) {
  GRAPEVINE_CHECK(!started(), "operation ", operation_, " was started twice");
  sum_ = std::move(input);
  input = at::Tensor();
  std::vector<OutgoingChunk> out;
  if (is_extra()) out.push_back(message(position_ - core_, 0));
  enter(is_extra() ? last_round() : (has_extra() ? 0 : 1), out);
  proceed(out);
  return out;
}

// A round begins with this rank's message.
void RecursiveDoubling::enter(std::int32_t round, std::vector<OutgoingChunk>& out) {
  round_ = round;
  if (is_extra() || round == 0) return;
  if (round <= levels_) return out.push_back(message(position_ ^ (1 << (round - 1)), round));
  if (has_extra()) out.push_back(message(position_ + core_, round));
  round_ = last_round() + 1;
}

void RecursiveDoubling::proceed(std::vector<OutgoingChunk>& out) {
  while (!done()) {
    auto received = early_.extract(round_);
    if (received.empty()) return;
    if (is_extra())
      sum_.copy_(received.mapped().read());
    else
      add(sum_, received.mapped().read());
    enter(round_ + 1, out);
    if (is_extra()) round_ = last_round() + 1;
  }
}

// Whether a message of `round` is missing.
bool RecursiveDoubling::expects(std::int32_t round) const {
  if (done() || round < round_ || early_.count(round) > 0) return false;
  if (is_extra()) return round == last_round();
  return round >= (has_extra() ? 0 : 1) && round <= levels_;
}

std::vector<OutgoingChunk> RecursiveDoubling::on_chunk(Chunk chunk) {
  GRAPEVINE_CHECK(started() && chunk.operation == operation_ && expects(chunk.round), "round ",
                  chunk.round, " of operation ", chunk.operation, " in round ", round_,
                  " of operation ", operation_);
  GRAPEVINE_CHECK(chunk.data.defined() && chunk.data.dtype() == sum_.scalar_type() &&
                      chunk.data.sizes() == sum_.sizes(),
                  "a summand of another size or type in operation ", operation_);
  early_.emplace(chunk.round, std::move(chunk.data));
  std::vector<OutgoingChunk> out;
  proceed(out);
  return out;
}

std::vector<Awaited> RecursiveDoubling::awaited() const {
  if (done()) return {};
  std::int32_t from = position_ ^ (1 << std::max(round_ - 1, 0));
  if (is_extra()) from = position_ - core_;
  if (round_ == 0) from = position_ + core_;
  return {{ranks_[static_cast<std::size_t>(from)], PayloadKind::chunk, operation_}};
}

OutgoingChunk RecursiveDoubling::message(std::int32_t to, std::int32_t round) const {
  FrozenTensor sum = FrozenTensor::freeze(memory_.copy_of(sum_));
  return {ranks_[static_cast<std::size_t>(to)], Chunk{operation_, round, 0, std::move(sum)}};
}

at::Tensor RecursiveDoubling::take_result() {
  GRAPEVINE_CHECK(done() && sum_.defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return std::exchange(sum_, at::Tensor());
}

void RecursiveDoubling::fields(Archive& a) {
  std::int64_t operation = operation_, ranks = size();
  a.whole("operation", operation);
  a.whole("ranks", ranks);
  if (operation != operation_ || ranks != size())
    a.fail(bad_input("saved sum is operation " + std::to_string(operation) + " of " +
                     std::to_string(ranks) + " ranks, this one is " + std::to_string(operation_) +
                     " of " + std::to_string(size()) + ": resume with the same ranks"));
  a.whole("round", round_, -1, last_round() + 1);
  a.values("sum", sum_);
  if (started() && !done()) a.needs("sum");
  if (a.loads()) early_.clear();
  for (std::int32_t round = 0; round <= last_round(); ++round) early_field(a, round);
}

void RecursiveDoubling::early_field(Archive& a, std::int32_t round) {
  const std::string name = "early." + std::to_string(round);
  const auto held = early_.find(round);
  FrozenTensor data = held == early_.end() ? FrozenTensor() : held->second;
  a.values(name, data);
  if (!a.loads() || !data.defined()) return;
  a.require(sum_.defined() && data.sizes() == sum_.sizes() && data.dtype() == sum_.scalar_type(),
            name, "is of another size or type than the sum");
  early_.emplace(round, std::move(data));
}

}  // namespace grapevine
