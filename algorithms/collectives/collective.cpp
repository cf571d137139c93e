#include "algorithms/collectives/collective.hpp"

#include <limits>
#include <numeric>
#include <utility>

namespace grapevine {

std::vector<Rank> all_ranks(std::int32_t count) {
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void CollectiveInbox::hold(Chunk chunk) {
  std::vector<Chunk>& queue = held_[chunk.operation];
  queue.push_back(std::move(chunk));
}

std::vector<Chunk> CollectiveInbox::take(std::int64_t operation) {
  auto node = held_.extract(operation);
  return node.empty() ? std::vector<Chunk>() : std::move(node.mapped());
}

std::size_t CollectiveInbox::size() const {
  std::size_t n = 0;
  for (const auto& [operation, chunks] : held_) n += chunks.size();
  return n;
}

void CollectiveInbox::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::vector<Chunk> chunks;
  for (const auto& [operation, held] : held_) chunks.insert(chunks.end(), held.begin(), held.end());
  a.counted("chunks", "chunk", chunks, [](Archive& inner, Chunk& chunk) {
    inner.whole("operation", chunk.operation);
    inner.whole("round", chunk.round, 0, kMost);
    inner.whole("index", chunk.index, 0, kMost);
    inner.needs("data");
    inner.values("data", chunk.data);
  });
  if (!a.loads() || !a.ok()) return;
  held_.clear();
  for (Chunk& chunk : chunks) hold(std::move(chunk));
}

}  // namespace grapevine
