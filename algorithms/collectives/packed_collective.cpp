#include "algorithms/collectives/packed_collective.hpp"

#include <limits>
#include <string>
#include <utility>

#include "algorithms/collectives/butterfly_top_k.hpp"
#include "algorithms/collectives/packed_all_gather.hpp"
#include "algorithms/collectives/tree_top_k.hpp"
#include "messages/check.hpp"

namespace grapevine {

void PackedInbox::put(PackedChunk chunk) {
  const auto key = std::tuple(chunk.operation, chunk.round, chunk.sender);
  const bool fresh = held_.emplace(key, std::move(chunk.data)).second;
  GRAPEVINE_CHECK(fresh, "two vectors of operation ", std::get<0>(key), ", round ",
                  std::get<1>(key), " from position ", std::get<2>(key));
}

std::optional<Packed> PackedInbox::take(std::int64_t operation, std::int32_t round,
                                        std::int32_t sender) {
  auto node = held_.extract({operation, round, sender});
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

StateDict PackedInbox::save() const {
  StateDict state;
  std::int64_t n = 0;
  for (const auto& [key, packed] : held_) {
    StateDict entry = save_packed(packed);
    entry.put("operation", std::get<0>(key));
    entry.put("round", std::int64_t{std::get<1>(key)});
    entry.put("sender", std::int64_t{std::get<2>(key)});
    state.put_all(std::to_string(n++), entry);
  }
  state.put("count", n);
  return state;
}

Expected<void> PackedInbox::load(const StateDict& state, const PackedCheck& check) {
  const auto count = state.integer("count");
  if (!count) return count.error();
  PackedInbox loaded;
  for (std::int64_t i = 0; i < *count; ++i) {
    const StateDict entry = state.under(std::to_string(i));
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const auto operation = entry.integer("operation"), round = entry.integer_in("round", 0, kMost),
               sender = entry.integer_in("sender", 0, kMost);
    for (const auto* field : {&operation, &round, &sender})
      if (!*field) return field->error();
    auto packed = load_packed(entry, check);
    if (!packed) return packed.error();
    const auto key = std::tuple(*operation, static_cast<std::int32_t>(*round),
                                static_cast<std::int32_t>(*sender));
    if (!loaded.held_.emplace(key, std::move(*packed)).second)
      return bad_input(
          "two vectors of the saved state are of one sender and round: the checkpoint is damaged, "
          "resume from another one");
  }
  *this = std::move(loaded);
  return {};
}

SparseVector PackedCollective::list_of(const Packed& packed) const {
  auto list = from_packed(packed, place_.d);
  GRAPEVINE_CHECK(list.ok(), list.error().message);
  return std::move(*list);
}

std::optional<SparseVector> PackedCollective::take_list(PackedInbox& inbox, std::int32_t round,
                                                        std::int32_t sender) const {
  const auto packed = inbox.take(place_.operation, round, sender);
  if (!packed) return std::nullopt;
  return list_of(*packed);
}

std::unique_ptr<PackedCollective> make_packed_collective(SparseReduce reduce,
                                                         CollectivePlace place) {
  switch (reduce) {
    case SparseReduce::all_gather:
      return std::make_unique<PackedAllGather>(std::move(place), false);
    case SparseReduce::all_gather_reselect:
      return std::make_unique<PackedAllGather>(std::move(place), true);
    case SparseReduce::butterfly:
      return std::make_unique<ButterflyTopK>(std::move(place));
    case SparseReduce::tree:
      return std::make_unique<TreeTopK>(std::move(place));
  }
  GRAPEVINE_CHECK(false, "a reduction without a collective");
}

StateDict save_packed(const Packed& packed) {
  StateDict state;
  if (packed.indices.defined()) state.put("indices", packed.indices.read());
  if (packed.values.defined()) state.put("values", packed.values.read());
  if (packed.scales.defined()) state.put("scales", packed.scales.read());
  return state;
}

Expected<Packed> load_packed(const StateDict& state, const PackedCheck& check) {
  Packed packed;
  for (const auto& [name, to] : {std::pair<const char*, FrozenTensor*>{"indices", &packed.indices},
                                 {"values", &packed.values},
                                 {"scales", &packed.scales}}) {
    if (state.entries().count(name) == 0) continue;
    const auto tensor = state.tensor(name);
    if (!tensor) return tensor.error();
    *to = FrozenTensor::copy_of(*tensor);
  }
  if (check)
    if (const auto fits = check(packed); !fits)
      return bad_input("a vector of the saved state is damaged (" + fits.error().message +
                       "): resume from another checkpoint");
  return packed;
}

}  // namespace grapevine
