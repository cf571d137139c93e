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

void PackedInbox::fields(Archive& a, const PackedCheck& check) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::vector<PackedChunk> chunks;
  for (const auto& [key, packed] : held_)
    chunks.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), packed});
  a.counted("count", "", chunks, [&check](Archive& inner, PackedChunk& chunk) {
    inner.whole("operation", chunk.operation);
    inner.whole("round", chunk.round, 0, kMost);
    inner.whole("sender", chunk.sender, 0, kMost);
    packed_fields(inner, chunk.data, check);
  });
  if (!a.loads() || !a.ok()) return;
  held_.clear();
  for (PackedChunk& chunk : chunks)
    if (!held_.emplace(std::tuple(chunk.operation, chunk.round, chunk.sender), chunk.data).second)
      a.fail(bad_input(
          "two vectors of the saved state are of one sender and round: the checkpoint is damaged, "
          "resume from another one"));
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

void PackedCollective::list_field(Archive& a, const std::string& name, SparseVector& list) const {
  Packed packed = a.loads() ? Packed() : to_packed(list);
  a.nested(name, [&packed](Archive& inner) { packed_fields(inner, packed, {}); });
  if (!a.loads() || !a.ok()) return;
  auto read = from_packed(packed, place_.d);
  a.require(read.ok(), name, "is no sparse vector of " + std::to_string(place_.d));
  if (read) list = std::move(*read);
}

void packed_fields(Archive& a, Packed& packed, const PackedCheck& check) {
  a.tensor("indices", packed.indices);
  a.tensor("values", packed.values);
  a.tensor("scales", packed.scales);
  if (!a.loads() || !a.ok() || !check) return;
  if (const auto fits = check(packed); !fits)
    a.fail(bad_input("a vector of the saved state is damaged (" + fits.error().message +
                     "): resume from another checkpoint"));
}

}  // namespace grapevine
