#include "algorithms/collectives/collective.hpp"

#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace grapevine {
namespace {

Expected<std::int32_t> small_integer(const StateDict& state, const std::string& name) {
  Expected<std::int64_t> value = state.integer(name);
  if (!value) return value.error();
  if (*value < 0 || *value > std::numeric_limits<std::int32_t>::max())
    return bad_input("entry '" + name + "' of the saved state is " + std::to_string(*value) +
                     ": the checkpoint is damaged, resume from another one");
  return static_cast<std::int32_t>(*value);
}

StateDict save_chunk(const Chunk& chunk) {
  StateDict state;
  state.put("operation", chunk.operation);
  state.put("round", std::int64_t{chunk.round});
  state.put("index", std::int64_t{chunk.index});
  state.put("data", chunk.data.read().clone());
  return state;
}

Expected<Chunk> load_chunk(const StateDict& state) {
  Expected<std::int64_t> operation = state.integer("operation");
  if (!operation) return operation.error();
  Expected<std::int32_t> round = small_integer(state, "round");
  if (!round) return round.error();
  Expected<std::int32_t> index = small_integer(state, "index");
  if (!index) return index.error();
  Expected<at::Tensor> data = state.tensor("data");
  if (!data) return data.error();
  return Chunk{*operation, *round, *index, FrozenTensor::copy_of(*data)};
}

}  // namespace

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

StateDict CollectiveInbox::save() const {
  StateDict state;
  std::int64_t n = 0;
  for (const auto& [operation, chunks] : held_)
    for (const Chunk& chunk : chunks)
      state.put_all("chunk" + std::to_string(n++), save_chunk(chunk));
  state.put("chunks", n);
  return state;
}

Expected<void> CollectiveInbox::load(const StateDict& state) {
  Expected<std::int64_t> n = state.integer("chunks");
  if (!n) return n.error();
  CollectiveInbox loaded;
  for (std::int64_t i = 0; i < *n; ++i) {
    Expected<Chunk> chunk = load_chunk(state.under("chunk" + std::to_string(i)));
    if (!chunk) return chunk.error();
    loaded.hold(*std::move(chunk));
  }
  *this = std::move(loaded);
  return {};
}

}  // namespace grapevine
