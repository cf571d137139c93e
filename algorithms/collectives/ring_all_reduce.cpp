#include "algorithms/collectives/ring_all_reduce.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {
RingAllReduce::RingAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                             std::int64_t piece_elements, RecycledMemory memory)
    : ranks_(std::move(ranks)),
      position_(position),
      operation_(operation),
      piece_elements_(piece_elements),
      memory_(std::move(memory)),
      arrived_(static_cast<std::size_t>(std::max(rounds(), 0))) {
  check_participants(ranks_, position_, piece_elements_);
}

std::vector<OutgoingChunk> RingAllReduce::start(at::Tensor&& input) {
  GRAPEVINE_CHECK(!started_, "operation ", operation_, " was started twice");
  GRAPEVINE_CHECK(is_flat_float(input), "input must be a flat contiguous float32 tensor");
  data_.set(std::move(input));
  input = at::Tensor();
  started_ = true;
  pieces_ = pieces_of(elements());
  left_ = std::int64_t{rounds()} * pieces_;
  std::vector<OutgoingChunk> out;
  if (size() == 1) return out;
  for (std::int32_t piece = 0; piece < std::min(kWindow, pieces_); ++piece)
    out.push_back(opening(piece));
  return out;
}

std::vector<OutgoingChunk> RingAllReduce::on_chunk(Chunk chunk) {
  check(chunk);
  const std::int32_t round = chunk.round;
  const std::int32_t piece = arrived_[static_cast<std::size_t>(round)]++;
  --left_;
  const PieceBounds mine = bounds(wrap(position_ - 1 - round), piece);
  const std::int32_t last_sum = size() - 2;
  FrozenTensor data = std::move(chunk.data);
  if (round <= last_sum)
    data = FrozenTensor::freeze(sum_of_two(std::move(data), data_.at(mine), memory_));
  if (round >= last_sum) data_.write(mine, data);
  std::vector<OutgoingChunk> out;
  if (round + 1 < rounds()) out.push_back(to_right(round + 1, chunk.index, std::move(data)));
  if (round == 0 && piece + kWindow < pieces_) out.push_back(opening(piece + kWindow));
  return out;
}

void RingAllReduce::check(const Chunk& chunk) const {
  GRAPEVINE_CHECK(started_ && !done(), "chunk of operation ", chunk.operation, " while operation ",
                  operation_, " is not running");
  GRAPEVINE_CHECK(chunk.operation == operation_ && chunk.round >= 0 && chunk.round < rounds(),
                  "got operation ", chunk.operation, ", round ", chunk.round, " of ", rounds(),
                  "; expected operation ", operation_);
  // The left neighbour passes a piece on in round r only after it has done so in round r-1.
  const auto round = static_cast<std::size_t>(chunk.round);
  const std::int32_t piece = arrived_[round];
  const std::int32_t begun = round == 0 ? pieces_ : arrived_[round - 1];
  const std::int32_t slice = wrap(position_ - 1 - chunk.round);
  GRAPEVINE_CHECK(piece < begun && chunk.index == slice * pieces_ + piece, "got index ",
                  chunk.index, " in round ", chunk.round, " of operation ", operation_,
                  "; expected slice ", slice, " of ", size(), ", piece ", piece, " of ", begun);
  check_piece(chunk, bounds(slice, piece).length);
}

std::vector<Awaited> RingAllReduce::awaited() const {
  if (done()) return {};
  const auto all = static_cast<std::int32_t>(std::int64_t{rounds()} * pieces_);
  const auto next = static_cast<std::int32_t>(all - left_ + 1);
  return {{ranks_[static_cast<std::size_t>(wrap(position_ - 1))], PayloadKind::chunk, operation_,
           next, all}};
}

at::Tensor RingAllReduce::take_result() {
  GRAPEVINE_CHECK(done() && data_.values().defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return data_.take();
}

PieceBounds RingAllReduce::bounds(std::int32_t slice, std::int32_t piece) const {
  return bounds_of_piece(elements(), size(), slice, pieces_, piece);
}

// The own values of a piece, which starts its path round the ring here.
OutgoingChunk RingAllReduce::opening(std::int32_t piece) {
  return to_right(0, position_ * pieces_ + piece, data_.lend(bounds(position_, piece)));
}

OutgoingChunk RingAllReduce::to_right(std::int32_t round, std::int32_t index,
                                      FrozenTensor data) const {
  const Rank right = ranks_[static_cast<std::size_t>(wrap(position_ + 1))];
  return {right, Chunk{operation_, round, index, std::move(data)}};
}

void RingAllReduce::fields(Archive& a) {
  identity_fields(a);
  std::int64_t started = started_ ? 1 : 0, pieces = pieces_;
  at::Tensor arrived = at::tensor(arrived_, at::kInt);
  a.whole("started", started);
  a.whole("pieces", pieces);
  a.needs("arrived");
  a.tensor("arrived", arrived);
  data_.complete();
  a.values("data", data_.values());
  if (a.loads() && a.ok() && !resume(started, pieces, arrived))
    a.fail(bad_input(
        "entries of the saved all-reduce do not fit each other: the checkpoint is damaged, resume "
        "from another one"));
}

void RingAllReduce::identity_fields(Archive& a) const {
  const at::Tensor own = at::tensor(ranks_, at::kInt);
  at::Tensor ring = own;
  std::int64_t position = position_, operation = operation_;
  a.needs("ring");
  a.tensor("ring", ring);
  a.whole("position", position);
  a.whole("operation", operation);
  if (!ring.equal(own) || position != position_)
    a.fail(bad_input("saved all-reduce is of position " + std::to_string(position) +
                     " in a ring of " + std::to_string(ring.numel()) + ", this one of position " +
                     std::to_string(position_) + " in a ring of " + std::to_string(size()) +
                     ": resume with the same ranks"));
  a.require(
      operation == operation_, "operation",
      "is operation " + std::to_string(operation) + ", this one is " + std::to_string(operation_));
}

bool RingAllReduce::resume(std::int64_t started, std::int64_t pieces, const at::Tensor& arrived) {
  const bool has_data = data_.values().defined();
  if (started < 0 || started > 1 || arrived.scalar_type() != at::kInt || arrived.dim() != 1 ||
      arrived.numel() != static_cast<std::int64_t>(arrived_.size()) ||
      (has_data && !is_flat_float(data_.values())))
    return false;
  started_ = started == 1;
  if (has_data && started_) pieces_ = pieces_of(elements());
  if (!has_data) pieces_ = static_cast<std::int32_t>(pieces);  // of a result that was taken
  left_ = started_ ? std::int64_t{rounds()} * pieces_ : 0;
  const at::Tensor counts = arrived.contiguous();
  std::int32_t most = started_ ? pieces_ : 0;
  for (std::size_t round = 0; round < arrived_.size(); ++round) {
    arrived_[round] = counts.data_ptr<std::int32_t>()[round];
    if (arrived_[round] < 0 || arrived_[round] > most) return false;
    most = arrived_[round];
    left_ -= most;
  }
  const bool running = started_ && left_ > 0;
  return pieces == pieces_ && pieces_ >= 1 && (started_ || !has_data) && (has_data || !running);
}

}  // namespace grapevine
