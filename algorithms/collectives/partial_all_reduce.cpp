#include "algorithms/collectives/partial_all_reduce.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

void append(std::vector<OutgoingMessage>& out, std::vector<OutgoingMessage> more) {
  for (OutgoingMessage& message : more) out.push_back(std::move(message));
}

}  // namespace

PartialAllReduce::PartialAllReduce(std::vector<Rank> ranks, std::int32_t position,
                                   std::int64_t operation, Trigger trigger,
                                   std::shared_ptr<Reduction> reduction)
    : size_(ranks.size()),
      position_(position),
      operation_(operation),
      reduction_(reduction ? std::move(reduction)
                           : std::shared_ptr<Reduction>(make_exact_reduction(ranks, position))),
      activation_(ranks, position, operation, trigger),
      tally_(ranks, position, tally_of(operation)) {}

std::int64_t PartialAllReduce::operation_of(const Payload& payload) {
  if (const auto* activate = std::get_if<Activate>(&payload)) return activate->operation;
  if (const auto* packed = std::get_if<PackedChunk>(&payload)) return packed->operation / 2;
  const auto* chunk = std::get_if<Chunk>(&payload);
  GRAPEVINE_CHECK(chunk != nullptr, "a message that is no part of a partial sum");
  return chunk->operation / 2;
}

bool PartialAllReduce::is_part_of_sum(const Payload& payload) {
  const auto* chunk = std::get_if<Chunk>(&payload);
  return chunk != nullptr ? chunk->operation % 2 == 0
                          : std::holds_alternative<PackedChunk>(payload);
}

std::vector<OutgoingMessage> PartialAllReduce::post() { return activation_.post(); }

std::vector<OutgoingMessage> PartialAllReduce::on_activate(const Activate& message) {
  return activation_.on_message(message);
}

std::vector<OutgoingMessage> PartialAllReduce::on_message(Rank from, Payload payload) {
  std::vector<OutgoingMessage> out = activation_.begin();
  if (is_part_of_sum(payload)) {
    append(out, reduction_->on_message(from, std::move(payload)));
    return out;
  }
  Chunk chunk = std::move(std::get<Chunk>(payload));
  if (contributed())
    append(out, tally_.on_chunk(std::move(chunk)));
  else
    early_.hold(std::move(chunk));
  return out;
}

std::vector<OutgoingMessage> PartialAllReduce::contribute(at::Tensor&& value, std::int64_t entry,
                                                          double epoch, Rng& rng) {
  GRAPEVINE_CHECK(begun() && !contributed(), "a contribution to operation ", operation_,
                  begun() ? " twice" : " that has not begun");
  std::vector<OutgoingMessage> out;
  append(out, reduction_->start(2 * operation_, epoch, std::move(value), rng));
  at::Tensor entries = at::zeros({static_cast<std::int64_t>(size_)}, at::kLong);
  entries.data_ptr<std::int64_t>()[position_] = entry;
  append(out, tally_.start(std::move(entries)));
  for (Chunk& chunk : early_.take(tally_.operation()))
    append(out, tally_.on_chunk(std::move(chunk)));
  return out;
}

std::vector<Awaited> PartialAllReduce::awaited() const {
  if (!begun()) return {activation_.awaited()};
  std::vector<Awaited> missing;
  if (!contributed()) return missing;
  if (!reduction_->done()) missing = reduction_->awaited();
  for (const Awaited& one : tally_.awaited()) missing.push_back(one);
  for (Awaited& one : missing) one.operation = operation_;
  return missing;
}

std::vector<std::int32_t> PartialAllReduce::Result::contributors() const {
  std::vector<std::int32_t> positions;
  for (std::size_t position = 0; position < tally.size(); ++position)
    if (tally[position] > 0) positions.push_back(static_cast<std::int32_t>(position));
  return positions;
}

PartialAllReduce::Result PartialAllReduce::take_result() {
  const at::Tensor tally = tally_.take_result();
  const auto* entries = tally.data_ptr<std::int64_t>();
  return {reduction_->take_sum(), std::vector<std::int64_t>(entries, entries + size_)};
}

void PartialAllReduce::fields(Archive& a, double epoch) {
  a.part("activation", activation_);
  a.part("reduction", *reduction_, 2 * operation_, epoch);
  a.part("tally", tally_);
  a.part("early", early_);
}

}  // namespace grapevine
