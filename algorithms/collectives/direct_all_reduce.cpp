#include "algorithms/collectives/direct_all_reduce.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"

namespace grapevine {

DirectAllReduce::DirectAllReduce(std::vector<Rank> ranks, std::int32_t position,
                                 std::int64_t operation, std::int64_t piece_elements,
                                 RecycledMemory memory)
    : ranks_(std::move(ranks)),
      position_(position),
      operation_(operation),
      piece_elements_(piece_elements),
      memory_(std::move(memory)),
      others_(ranks_.size()) {
  check_participants(ranks_, position_, piece_elements_);
}

std::vector<OutgoingChunk> DirectAllReduce::start(at::Tensor&& input) {
  GRAPEVINE_CHECK(!started_, "operation ", operation_, " was started twice");
  GRAPEVINE_CHECK(is_flat_float(input), "input must be a flat contiguous float32 tensor");
  data_.set(std::move(input));
  input = at::Tensor();
  started_ = true;
  pieces_ = pieces_of_slice(elements(), size(), piece_elements_);
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
  data_.write(bounds(owner, piece), std::move(chunk.data));
  if (piece + kWindow < pieces_) out.push_back(own_part(owner, piece + kWindow));
  return out;
}

void DirectAllReduce::add_complete_sums(std::vector<OutgoingChunk>& out) {
  while (summed_ < pieces_ && has_all_parts()) {
    const std::int32_t piece = summed_++;
    const FrozenTensor sum = sum_of(piece);
    data_.write(bounds(position_, piece), sum);
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
  const at::Tensor own = data_.at(bounds(position_, piece));
  const auto take = [&](std::int32_t from) {
    FrozenTensor taken = std::move(other(from).parts.front());
    other(from).parts.pop_front();
    return taken;
  };
  // x_0 + x_1 and x_1 + x_0 have the same bits.
  FrozenTensor first = take(position_ == 0 ? 1 : 0);
  const FrozenTensor second = position_ <= 1 ? FrozenTensor() : take(1);
  at::Tensor sum = sum_of_two(std::move(first), second.defined() ? second.read() : own, memory_);
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
  check_piece(chunk, bounds(slice, piece).length);
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
  GRAPEVINE_CHECK(done() && data_.values().defined(), "result of operation ", operation_,
                  " taken before its end or twice");
  return data_.take();
}

PieceBounds DirectAllReduce::bounds(std::int32_t slice, std::int32_t piece) const {
  return bounds_of_piece(elements(), size(), slice, pieces_, piece);
}

OutgoingChunk DirectAllReduce::own_part(std::int32_t slice, std::int32_t piece) {
  return {rank_at(slice),
          Chunk{operation_, position_, slice * pieces_ + piece, data_.lend(bounds(slice, piece))}};
}

void DirectAllReduce::fields(Archive& a) {
  identity_fields(a, ranks_, position_, operation_);
  a.flag("started", started_);
  a.whole("pieces", pieces_);
  a.whole("summed", summed_, 0, pieces_);
  data_.complete();
  a.values("data", data_.values());
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
  const bool has_data = data_.values().defined();
  if (has_data && !is_flat_float(data_.values())) return false;
  if (has_data && started_ && pieces_ != pieces_of_slice(elements(), size(), piece_elements_))
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
          given.numel() != bounds(position_, summed_ + static_cast<std::int32_t>(i)).length)
        return false;
    }
  }
  const bool running = started_ && left_ > 0;
  return pieces_ >= 1 && (started_ || !has_data) && (has_data || !running);
}

}  // namespace grapevine
