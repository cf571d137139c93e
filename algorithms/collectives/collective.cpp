#include "algorithms/collectives/collective.hpp"

#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace grapevine {

std::vector<Rank> all_ranks(std::int32_t count) {
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void identity_fields(Archive& a, const std::vector<Rank>& own_ranks, std::int32_t own_position,
                     std::int64_t own_operation) {
  std::vector<Rank> ranks = own_ranks;
  std::int64_t position = own_position, operation = own_operation;
  a.list("ranks", ranks);
  a.whole("position", position);
  a.whole("operation", operation);
  if (ranks != own_ranks || position != own_position)
    a.fail(bad_input("saved all-reduce is of position " + std::to_string(position) + " among " +
                     std::to_string(ranks.size()) + " ranks, this one of position " +
                     std::to_string(own_position) + " among " + std::to_string(own_ranks.size()) +
                     ": resume with the same ranks"));
  a.require(operation == own_operation, "operation",
            "is operation " + std::to_string(operation) + ", this one is " +
                std::to_string(own_operation));
}

void CollectiveInbox::hold(Chunk chunk) {
  std::vector<Chunk>& queue = held_[chunk.operation];
  queue.push_back(std::move(chunk));
}

std::vector<Chunk> CollectiveInbox::take(std::int64_t operation) {
  auto node = held_.extract(operation);
  return node.empty() ? std::vector<Chunk>() : std::move(node.mapped());
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
