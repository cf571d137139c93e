// DifferenceInbox: the compressed differences of gossip rounds that have arrived and are not
// folded. A part of the mixer of replicas.
#pragma once
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/collectives/packed_collective.hpp"
#include "messages/check.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Not thread-safe: belongs to one mixer.
class DifferenceInbox {
 public:
  struct Difference {
    Stamp stamp;
    Packed packed;
    double w = 1;  // of the sender's model
  };

  // `weighted`: before each difference comes the weight of its model.
  explicit DifferenceInbox(bool weighted) : weighted_(weighted) {}

  // A message of another kind, or a second one of a peer and round, is a broken invariant.
  void put(Envelope envelope) {
    const Rank from = envelope.from;
    if (const auto* share = std::get_if<Share>(&envelope.payload)) {
      GRAPEVINE_CHECK(weighted_ && share->x.numel() == 0 && std::isfinite(share->w) && share->w > 0,
                      "rank ", from, " sent compressed gossip a share of a model");
      const bool fresh = weights_.try_emplace({share->round, from}, share->w).second;
      GRAPEVINE_CHECK(fresh, "two weights of one round from rank ", from);
      return;
    }
    auto* chunk = std::get_if<PackedChunk>(&envelope.payload);
    GRAPEVINE_CHECK(chunk != nullptr && chunk->sender == from, "rank ", from,
                    " sent compressed gossip a message that is not its own difference");
    const Key key{chunk->operation, from};
    GRAPEVINE_CHECK(!weighted_ || weights_.count(key) > 0, "rank ", from,
                    " sent a difference without the weight of its model");
    const bool fresh = arrived_.try_emplace(key, Difference{envelope.stamp, chunk->data}).second;
    GRAPEVINE_CHECK(fresh, "two differences of one round from rank ", from);
  }
  // Round and sender of all that have arrived, ascending.
  std::vector<std::pair<std::int64_t, Rank>> keys() const {
    std::vector<std::pair<std::int64_t, Rank>> keys;
    for (const auto& entry : arrived_) keys.push_back(entry.first);
    return keys;
  }
  bool has(std::int64_t round, Rank from) const { return arrived_.count({round, from}) > 0; }
  // None where it has not arrived; its weight is kept no longer either way.
  std::optional<Difference> take(std::int64_t round, Rank from) {
    const auto weight = weights_.extract({round, from});
    auto arrived = arrived_.extract({round, from});
    if (arrived.empty()) return std::nullopt;
    if (weighted_) arrived.mapped().w = weight.mapped();
    return std::move(arrived.mapped());
  }

  void fields(Archive& a, const PackedCheck& check) {
    const std::string twice = "has one round and rank twice";
    a.entries("arrived", arrived_, twice, [&](Archive& inner, Key& key, Difference& difference) {
      inner.whole("round", key.first);
      inner.whole("from", key.second);
      inner.whole("step", difference.stamp.step);
      inner.whole("version", difference.stamp.version);
      packed_fields(inner, difference.packed, check);
    });
    a.entries("weights", weights_, twice, [&](Archive& inner, Key& key, double& w) {
      inner.whole("round", key.first);
      inner.whole("from", key.second);
      inner.number("w", w);
    });
    for (auto& [key, difference] : arrived_) {
      difference.stamp.origin = key.second;
      a.require(!weighted_ || weights_.count(key) > 0, "weights", "lacks that of a difference");
    }
  }

 private:
  using Key = std::pair<std::int64_t, Rank>;  // round and sender

  const bool weighted_;
  std::map<Key, Difference> arrived_;
  std::map<Key, double> weights_;
};

}  // namespace grapevine
