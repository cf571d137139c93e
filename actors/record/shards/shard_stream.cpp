#include "actors/record/shards/shard_stream.hpp"

#include <ATen/ATen.h>

namespace grapevine {

std::optional<StateChunk> ShardStream::next() {
  const std::int64_t length = std::min(kPart, size() - sent_);
  if (length == 0 || sent_ + length - stored_ > kWindow) return std::nullopt;
  at::Tensor part = at::empty({length}, at::kByte);
  std::copy_n(bytes_.begin() + sent_, length,
              reinterpret_cast<char*>(part.data_ptr<std::uint8_t>()));
  StateChunk chunk{transfer_of_cut(cut_), sent_, size(), FrozenTensor::freeze(std::move(part))};
  sent_ += length;
  return chunk;
}

bool ShardStream::stored(std::int64_t bytes) {
  if (bytes <= stored_ || bytes > sent_) return false;
  stored_ = bytes;
  return true;
}

}  // namespace grapevine
