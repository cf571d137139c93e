#include "algorithms/collectives/recursive_doubling.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

RecursiveDoubling::RecursiveDoubling(std::vector<Rank> ranks, std::int32_t position,
                                     std::int64_t operation)
    : ranks_(std::move(ranks)), position_(position), operation_(operation) {
  GRAPEVINE_CHECK(position_ >= 0 && position_ < size(), "position ", position_, " among ", size());
  while (2 * core_ <= size()) {
    core_ *= 2;
    ++levels_;
  }
}

std::vector<OutgoingChunk> RecursiveDoubling::start(const at::Tensor& input) {
  GRAPEVINE_CHECK(!started(), "operation ", operation_, " was started twice");
  sum_ = input.clone();
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
      sum_.add_(received.mapped().read());
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

OutgoingChunk RecursiveDoubling::message(std::int32_t to, std::int32_t round) const {
  return {ranks_[static_cast<std::size_t>(to)],
          Chunk{operation_, round, 0, FrozenTensor::copy_of(sum_)}};
}

at::Tensor RecursiveDoubling::take_result() {
  GRAPEVINE_CHECK(done() && sum_.defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return std::exchange(sum_, at::Tensor());
}

StateDict RecursiveDoubling::save() const {
  StateDict state;
  state.put("operation", operation_);
  state.put("ranks", std::int64_t{size()});
  state.put("round", std::int64_t{round_});
  if (sum_.defined()) state.put("sum", sum_.clone());
  for (const auto& [round, data] : early_)
    state.put("early." + std::to_string(round), data.read().clone());
  return state;
}

Expected<void> RecursiveDoubling::load(const StateDict& state) {
  const auto operation = state.integer("operation"), ranks = state.integer("ranks"),
             round = state.integer("round");
  for (const auto* field : {&operation, &ranks, &round})
    if (!*field) return field->error();
  if (*operation != operation_ || *ranks != size())
    return bad_input("saved sum is operation " + std::to_string(*operation) + " of " +
                     std::to_string(*ranks) + " ranks, this one is " + std::to_string(operation_) +
                     " of " + std::to_string(size()) + ": resume with the same ranks");
  const bool has_sum = state.entries().count("sum") > 0;
  const bool running = *round >= 0 && *round <= last_round();
  if (*round < -1 || *round > last_round() + 1 || (running && !has_sum))
    return bad_input("the saved sum of operation " + std::to_string(operation_) +
                     " is damaged: resume from another checkpoint");
  RecursiveDoubling loaded(ranks_, position_, operation_);
  loaded.round_ = static_cast<std::int32_t>(*round);
  if (has_sum) {
    const auto sum = state.tensor("sum");
    if (!sum) return sum.error();
    loaded.sum_ = sum->clone();
  }
  for (std::int32_t r = 0; r <= last_round(); ++r)
    if (const auto data = state.tensor("early." + std::to_string(r)); data.ok()) {
      if (!has_sum || data->sizes() != loaded.sum_.sizes() ||
          data->scalar_type() != loaded.sum_.scalar_type())
        return bad_input("entry 'early." + std::to_string(r) +
                         "' of the saved sum is of another size or type");
      loaded.early_.emplace(r, FrozenTensor::copy_of(*data));
    }
  *this = std::move(loaded);
  return {};
}

}  // namespace grapevine
