#include "algorithms/collectives/direct_all_reduce.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

DirectAllReduce::DirectAllReduce(std::vector<Rank> ranks, std::int32_t position,
                                 std::int64_t operation, std::int64_t piece_elements)
    : ranks_(std::move(ranks)),
      position_(position),
      operation_(operation),
      piece_elements_(piece_elements),
      others_(ranks_.size()) {
  check_participants(ranks_, position_, piece_elements_);
}

std::vector<OutgoingChunk> DirectAllReduce::start(at::Tensor&& input) {
  GRAPEVINE_CHECK(!started_, "operation ", operation_, " was started twice");
  GRAPEVINE_CHECK(is_flat_float(input), "input must be a flat contiguous float32 tensor");
  data_ = std::move(input);
  input = at::Tensor();
  started_ = true;
  pieces_ = pieces_of_slice(data_.numel(), size(), piece_elements_);
  left_ = std::int64_t{2} * (size() - 1) * pieces_;
  std::vector<OutgoingChunk> out;
  // Neighbours first, so that not all ranks send to the same one at once.
  for (std::int32_t piece = 0; piece < std::min(kWindow, pieces_); ++piece)
    for (std::int32_t step = 1; step < size(); ++step)
      out.push_back(own_part((position_ + step) % size(), piece));
  return out;
}

std::vector<OutgoingChunk> DirectAllReduce::on_chunk(Chunk chunk) {
  check(chunk);
  --left_;
  std::vector<OutgoingChunk> out;
  if (chunk.round < size()) {
    Other& from = other(chunk.round);
    ++from.arrived;
    from.parts.push_back(std::move(chunk.data));
    add_complete_sums(out);
    return out;
  }
  const std::int32_t owner = chunk.round - size();
  const std::int32_t piece = other(owner).sums++;
  at::Tensor theirs = part(owner, piece);
  kernels::copy(theirs, chunk.data.read());
  if (piece + kWindow < pieces_) out.push_back(own_part(owner, piece + kWindow));
  return out;
}

void DirectAllReduce::add_complete_sums(std::vector<OutgoingChunk>& out) {
  while (summed_ < pieces_ && has_all_parts()) {
    const std::int32_t piece = summed_++;
    const FrozenTensor sum = sum_of(piece);
    at::Tensor own = part(position_, piece);
    kernels::copy(own, sum.read());
    for (std::int32_t step = 1; step < size(); ++step)
      out.push_back({rank_at((position_ + step) % size()),
                     Chunk{operation_, size() + position_, position_ * pieces_ + piece, sum}});
  }
}

bool DirectAllReduce::has_all_parts() const {
  for (std::int32_t from = 0; from < size(); ++from)
    if (from != position_ && others_[static_cast<std::size_t>(from)].parts.empty()) return false;
  return true;
}

// In the order of positions, whichever rank sums.
FrozenTensor DirectAllReduce::sum_of(std::int32_t piece) {
  const at::Tensor own = part(position_, piece);
  const auto take = [&](std::int32_t from) {
    FrozenTensor taken = std::move(other(from).parts.front());
    other(from).parts.pop_front();
    return taken;
  };
  at::Tensor sum = empty_to_send(own.sizes(), own.scalar_type(), own.device());
  // Read in place: a copy of the own part would cost a pass.
  const FrozenTensor first = position_ == 0 ? FrozenTensor() : take(0);
  const FrozenTensor second = position_ == 1 ? FrozenTensor() : take(1);
  kernels::fold_into(sum, first.defined() ? first.read() : own,
                     second.defined() ? second.read() : own);
  for (std::int32_t from = 2; from < size(); ++from)
    kernels::fold(sum, from == position_ ? own : take(from).read());
  return FrozenTensor::freeze(std::move(sum));
}

void DirectAllReduce::check(const Chunk& chunk) const {
  GRAPEVINE_CHECK(started_ && !done(), "chunk of operation ", chunk.operation, " while operation ",
                  operation_, " is not running");
  const std::int32_t from = chunk.round % std::max(1, size());
  GRAPEVINE_CHECK(chunk.operation == operation_ && chunk.round >= 0 && chunk.round < 2 * size() &&
                      from != position_,
                  "got operation ", chunk.operation, ", round ", chunk.round, " of ", 2 * size(),
                  "; expected operation ", operation_);
  const bool is_sum = chunk.round >= size();
  const Other& sender = others_[static_cast<std::size_t>(from)];
  const std::int32_t slice = is_sum ? from : position_;
  const std::int32_t piece = is_sum ? sender.sums : sender.arrived;
  GRAPEVINE_CHECK(piece < pieces_ && chunk.index == slice * pieces_ + piece, "got index ",
                  chunk.index, " in round ", chunk.round, " of operation ", operation_,
                  "; expected slice ", slice, " of ", size(), ", piece ", piece, " of ", pieces_);
  check_piece(chunk, bounds_of_piece(data_.numel(), size(), slice, pieces_, piece).length);
}

// Ranks whose parts are missing hold up this rank, which holds up the others' sums.
std::vector<Awaited> DirectAllReduce::awaited() const {
  std::vector<Awaited> parts, sums;
  for (std::int32_t from = 0; from < size(); ++from) {
    const Other& sender = others_[static_cast<std::size_t>(from)];
    if (from == position_) continue;
    const auto next = [&](std::int32_t done) {
      return Awaited{rank_at(from), PayloadKind::chunk, operation_, done + 1, pieces_};
    };
    if (sender.arrived < pieces_) parts.push_back(next(sender.arrived));
    if (sender.sums < pieces_) sums.push_back(next(sender.sums));
  }
  return parts.empty() ? sums : parts;
}

at::Tensor DirectAllReduce::take_result() {
  GRAPEVINE_CHECK(done() && data_.defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return std::exchange(data_, at::Tensor());
}

at::Tensor DirectAllReduce::part(std::int32_t slice, std::int32_t piece) const {
  return piece_of_slice(data_, size(), slice, pieces_, piece);
}

OutgoingChunk DirectAllReduce::own_part(std::int32_t slice, std::int32_t piece) const {
  return {rank_at(slice), Chunk{operation_, position_, slice * pieces_ + piece,
                                frozen_to_send(part(slice, piece))}};
}

void DirectAllReduce::fields(Archive& a) {
  identity_fields(a, ranks_, position_, operation_);
  a.flag("started", started_);
  a.whole("pieces", pieces_);
  a.whole("summed", summed_, 0, pieces_);
  a.values("data", data_);
  for (std::int32_t from = 0; from < size(); ++from)
    a.nested("of." + std::to_string(from), [this, from](Archive& inner) {
      Other& sender = other(from);
      inner.whole("arrived", sender.arrived, 0, pieces_);
      inner.whole("sums", sender.sums, 0, pieces_);
      inner.items("parts", sender.parts,
                  [](Archive& each, FrozenTensor& part) { each.values("data", part); });
    });
  if (a.loads() && a.ok() && !resume())
    a.fail(bad_input(
        "entries of the saved all-reduce do not fit each other: the checkpoint is damaged, resume "
        "from another one"));
}

// Counts what is still to come; false where entries do not fit each other.
bool DirectAllReduce::resume() {
  const bool has_data = data_.defined();
  if (has_data && !is_flat_float(data_)) return false;
  if (has_data && started_ && pieces_ != pieces_of_slice(data_.numel(), size(), piece_elements_))
    return false;
  left_ = started_ ? std::int64_t{2} * (size() - 1) * pieces_ : 0;
  for (std::int32_t from = 0; from < size(); ++from) {
    const Other& sender = other(from);
    if (from == position_ && (sender.arrived > 0 || sender.sums > 0)) return false;
    if (from == position_) continue;
    left_ -= sender.arrived + sender.sums;
    if (sender.arrived - summed_ != static_cast<std::int32_t>(sender.parts.size())) return false;
    for (std::size_t i = 0; i < sender.parts.size(); ++i) {
      const FrozenTensor& given = sender.parts[i];
      if (!has_data || !given.defined() || !is_flat_float(given.read()) ||
          given.numel() != part(position_, summed_ + static_cast<std::int32_t>(i)).numel())
        return false;
    }
  }
  const bool running = started_ && left_ > 0;
  return pieces_ >= 1 && (started_ || !has_data) && (has_data || !running);
}

}  // namespace grapevine
