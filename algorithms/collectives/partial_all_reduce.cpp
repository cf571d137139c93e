#include "algorithms/collectives/partial_all_reduce.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

void append(std::vector<OutgoingMessage>& out, std::vector<OutgoingChunk> chunks) {
  for (OutgoingChunk& chunk : chunks) out.push_back({chunk.to, std::move(chunk.chunk)});
}

void append(std::vector<OutgoingMessage>& out, std::vector<OutgoingMessage> more) {
  for (OutgoingMessage& message : more) out.push_back(std::move(message));
}

}  // namespace

PartialAllReduce::PartialAllReduce(std::vector<Rank> ranks, std::int32_t position,
                                   std::int64_t operation, Trigger trigger, Reduction* compressed)
    : size_(ranks.size()),
      position_(position),
      operation_(operation),
      compressed_(compressed),
      activation_(ranks, position, operation, trigger),
      ring_(ranks, position, 2 * operation),
      tally_(ranks, position, 2 * operation + 1) {}

std::vector<OutgoingMessage> PartialAllReduce::post() { return activation_.post(); }

std::vector<OutgoingMessage> PartialAllReduce::on_activate(const Activate& message) {
  return activation_.on_message(message);
}

std::vector<OutgoingMessage> PartialAllReduce::on_chunk(Chunk chunk) {
  std::vector<OutgoingMessage> out = activation_.begin();
  if (contributed())
    feed(std::move(chunk), out);
  else
    early_.hold(std::move(chunk));
  return out;
}

std::vector<OutgoingMessage> PartialAllReduce::on_packed(Rank from, PackedChunk chunk) {
  GRAPEVINE_CHECK(compressed_ != nullptr, "a compressed vector in a sum that is exact, from rank ",
                  from);
  std::vector<OutgoingMessage> out = activation_.begin();
  append(out, compressed_->on_message(from, std::move(chunk)));
  return out;
}

std::vector<OutgoingMessage> PartialAllReduce::contribute(at::Tensor&& value, std::int64_t entry,
                                                          double epoch, Rng& rng) {
  GRAPEVINE_CHECK(begun() && !contributed(), "a contribution to operation ", operation_,
                  begun() ? " twice" : " that has not begun");
  std::vector<OutgoingMessage> out;
  if (compressed_ != nullptr)
    append(out, compressed_->start(operation_, epoch, std::move(value), rng));
  else
    append(out, ring_.start(std::move(value)));
  at::Tensor entries = at::zeros({static_cast<std::int64_t>(size_)}, at::kLong);
  entries.data_ptr<std::int64_t>()[position_] = entry;
  append(out, tally_.start(entries));
  for (const std::int64_t part : {ring_.operation(), tally_.operation()})
    for (Chunk& chunk : early_.take(part)) feed(std::move(chunk), out);
  return out;
}

void PartialAllReduce::feed(Chunk chunk, std::vector<OutgoingMessage>& out) {
  append(out, chunk.operation == tally_.operation() ? tally_.on_chunk(std::move(chunk))
                                                    : ring_.on_chunk(std::move(chunk)));
}

PartialAllReduce::Result PartialAllReduce::take_result() {
  const at::Tensor tally = tally_.take_result();
  const auto* entries = tally.data_ptr<std::int64_t>();
  at::Tensor sum = compressed_ ? compressed_->take_sum() : ring_.take_result();
  return {std::move(sum), std::vector<std::int64_t>(entries, entries + size_)};
}

StateDict PartialAllReduce::save() const {
  StateDict state;
  state.put_all("activation", activation_.save());
  state.put_all("ring", ring_.save());
  state.put_all("tally", tally_.save());
  state.put_all("early", early_.save());
  return state;
}

Expected<void> PartialAllReduce::load(const StateDict& state) {
  PartialAllReduce loaded = *this;
  if (auto part = loaded.activation_.load(state.under("activation")); !part) return part;
  if (auto part = loaded.ring_.load(state.under("ring")); !part) return part;
  if (auto part = loaded.tally_.load(state.under("tally")); !part) return part;
  if (auto part = loaded.early_.load(state.under("early")); !part) return part;
  *this = std::move(loaded);
  return {};
}

}  // namespace grapevine
