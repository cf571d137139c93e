#include "algorithms/collectives/ring_all_reduce.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "algorithms/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// received + own, in the received buffer where nobody else holds it: a slice is megabytes, and
// fresh memory costs a page fault per 4 KiB.
FrozenTensor add_own(FrozenTensor received, const at::Tensor& own) {
  if (received.sole_owner()) {
    at::Tensor sum = std::move(received).thaw();
    kernels::fold(sum, own);
    return FrozenTensor::freeze(std::move(sum));
  }
  at::Tensor sum = at::empty_like(own);
  kernels::fold_into(sum, received.read(), own);
  return FrozenTensor::freeze(std::move(sum));
}

bool is_flat(const at::Tensor& t) {
  return t.defined() && t.dim() == 1 && t.scalar_type() == at::kFloat && t.is_contiguous();
}

}  // namespace

RingAllReduce::RingAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation)
    : ranks_(std::move(ranks)), position_(position), operation_(operation) {
  GRAPEVINE_CHECK(position_ >= 0 && position_ < size(), "position ", position_, " in a ring of ",
                  size());
  std::vector<Rank> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  GRAPEVINE_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                  "a rank is twice in the ring");
}

std::vector<Outgoing> RingAllReduce::start(at::Tensor&& input) {
  GRAPEVINE_CHECK(!started_, "operation ", operation_, " was started twice");
  GRAPEVINE_CHECK(is_flat(input), "input must be a flat contiguous float32 tensor");
  data_ = std::move(input);
  input = at::Tensor();
  started_ = true;
  if (size() == 1) return {};
  return {to_right(0, position_, FrozenTensor::copy_of(slice(position_)))};
}

std::vector<Outgoing> RingAllReduce::on_chunk(Chunk chunk) {
  const std::int32_t index = wrap(position_ - 1 - round_);
  GRAPEVINE_CHECK(started_ && !done(), "chunk of operation ", chunk.operation, " while operation ",
                  operation_, " is not running");
  GRAPEVINE_CHECK(chunk.operation == operation_ && chunk.round == round_ && chunk.index == index,
                  "got operation ", chunk.operation, ", round ", chunk.round, ", slice ",
                  chunk.index, "; expected operation ", operation_, ", round ", round_, ", slice ",
                  index);
  at::Tensor mine = slice(index);
  GRAPEVINE_CHECK(
      chunk.data.defined() && is_flat(chunk.data.read()) && chunk.data.numel() == mine.numel(),
      "slice ", index, " of operation ", operation_, " has ", chunk.data.numel(),
      " elements here, expected ", mine.numel(), " of float32");

  const std::int32_t last_sum = size() - 2;
  FrozenTensor data = std::move(chunk.data);
  if (round_ <= last_sum) data = add_own(std::move(data), mine);
  if (round_ >= last_sum) mine.copy_(data.read());
  ++round_;
  if (done()) return {};
  return {to_right(round_, index, std::move(data))};
}

at::Tensor RingAllReduce::take_result() {
  GRAPEVINE_CHECK(done() && data_.defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return std::exchange(data_, at::Tensor());
}

at::Tensor RingAllReduce::slice(std::int32_t index) const {
  const std::int64_t begin = data_.numel() * index / size();
  const std::int64_t end = data_.numel() * (index + 1) / size();
  return data_.narrow(0, begin, end - begin);
}

Outgoing RingAllReduce::to_right(std::int32_t round, std::int32_t index, FrozenTensor data) const {
  const Rank right = ranks_[static_cast<std::size_t>(wrap(position_ + 1))];
  return {right, Chunk{operation_, round, index, std::move(data)}};
}

StateDict RingAllReduce::save() const {
  StateDict state;
  state.put("ring", at::tensor(ranks_, at::kInt));
  state.put("position", std::int64_t{position_});
  state.put("operation", operation_);
  state.put("round", std::int64_t{started_ ? round_ : -1});
  if (data_.defined()) state.put("data", data_.clone());
  return state;
}

Expected<void> RingAllReduce::check_identity(const StateDict& state) const {
  Expected<at::Tensor> ring = state.tensor("ring");
  if (!ring) return ring.error();
  Expected<std::int64_t> position = state.integer("position");
  if (!position) return position.error();
  Expected<std::int64_t> operation = state.integer("operation");
  if (!operation) return operation.error();
  if (!ring->equal(at::tensor(ranks_, at::kInt)) || *position != position_)
    return bad_input("saved all-reduce is of position " + std::to_string(*position) +
                     " in a ring of " + std::to_string(ring->numel()) + ", this one of position " +
                     std::to_string(position_) + " in a ring of " + std::to_string(size()) +
                     ": resume with the same ranks");
  if (*operation != operation_)
    return bad_input("saved all-reduce is operation " + std::to_string(*operation) +
                     ", this one is " + std::to_string(operation_) +
                     ": the checkpoint is damaged, resume from another one");
  return {};
}

Expected<void> RingAllReduce::load(const StateDict& state) {
  if (Expected<void> same = check_identity(state); !same) return same;
  Expected<std::int64_t> round = state.integer("round");
  if (!round) return round.error();
  const bool has_data = state.entries().count("data") > 0;
  at::Tensor data;
  if (has_data) {
    Expected<at::Tensor> saved = state.tensor("data");
    if (!saved) return saved.error();
    data = saved->clone();
  }
  const bool running = *round >= 0 && *round < rounds();
  if (*round < -1 || *round > rounds() || (running && !has_data) || (has_data && !is_flat(data)))
    return bad_input(
        "entries 'round' and 'data' of the saved all-reduce do not fit: the checkpoint "
        "is damaged, resume from another one");
  started_ = *round >= 0;
  round_ = started_ ? static_cast<std::int32_t>(*round) : 0;
  data_ = std::move(data);
  return {};
}

}  // namespace grapevine
