#include "actors/record/state_stream.hpp"

#include <utility>

namespace grapevine {

StateStream::StateStream(std::int64_t transfer, Parts parts)
    : transfer_(transfer), parts_(std::move(parts)) {
  for (const FrozenTensor& part : *parts_) total_ += part.numel();
}

std::optional<StateChunk> StateStream::next() {
  if (sent_ == parts_->size() || sent_ - arrived_ == kWindow) return std::nullopt;
  const FrozenTensor& part = (*parts_)[sent_++];
  const std::int64_t offset = std::exchange(sent_to_, sent_to_ + part.numel());
  return StateChunk{transfer_, offset, total_, part};
}

bool StateStream::arrived(std::int64_t bytes) {
  std::size_t count = arrived_;
  std::int64_t to = arrived_to_;
  while (count < sent_ && to < bytes) to += (*parts_)[count++].numel();
  if (to != bytes || count == arrived_) return false;
  arrived_ = count;
  arrived_to_ = to;
  return true;
}

}  // namespace grapevine
