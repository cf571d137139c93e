#include "actors/record/state_stream.hpp"

#include <ATen/ATen.h>

#include <algorithm>
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

bool PartialState::add(const StateChunk& part) {
  const at::Tensor& data = part.data.read();
  const bool is_bytes = data.defined() && data.scalar_type() == at::kByte && data.is_contiguous();
  if (!is_bytes || data.numel() == 0 || part.offset != arrived() ||
      (arrived() > 0 && part.total != total_) || data.numel() > part.total - part.offset)
    return false;
  total_ = part.total;
  const std::size_t size = bytes_.size() + static_cast<std::size_t>(data.numel());
  if (bytes_.capacity() < size)
    bytes_.reserve(std::min(static_cast<std::size_t>(total_), 2 * size));
  const auto* begin = reinterpret_cast<const char*>(data.data_ptr<std::uint8_t>());
  bytes_.insert(bytes_.end(), begin, begin + data.numel());
  return true;
}

std::vector<char> PartialState::take() {
  total_ = 0;
  return std::exchange(bytes_, std::vector<char>());
}

}  // namespace grapevine
