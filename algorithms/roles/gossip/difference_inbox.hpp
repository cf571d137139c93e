// DifferenceInbox: the compressed differences of gossip rounds that have arrived and are not
// folded. A difference has a message for each of its vectors, and counts once it has all. A part of
// the mixer of replicas.
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
    std::vector<Packed> vectors;
    double w = 1;  // of the sender's model
  };

  // `weighted`: before each difference comes the weight of its model. `vectors`: of a difference.
  DifferenceInbox(bool weighted, std::int64_t vectors)
      : weighted_(weighted), vectors_(static_cast<std::size_t>(vectors)) {}

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
    Difference& difference = arrived_[key];
    const std::size_t next = difference.vectors.size();
    GRAPEVINE_CHECK(next < vectors_ && chunk->round == static_cast<std::int32_t>(next),
                    "two differences of one round from rank ", from);
    difference.stamp = envelope.stamp;
    difference.vectors.push_back(chunk->data);
  }
  // Round and sender of all that have arrived whole, ascending.
  std::vector<std::pair<std::int64_t, Rank>> keys() const {
    std::vector<std::pair<std::int64_t, Rank>> keys;
    for (const auto& [key, difference] : arrived_)
      if (is_whole(difference)) keys.push_back(key);
    return keys;
  }
  bool has(std::int64_t round, Rank from) const {
    const auto found = arrived_.find({round, from});
    return found != arrived_.end() && is_whole(found->second);
  }
  // None where it has not arrived whole; neither its weight nor a part is kept any longer.
  std::optional<Difference> take(std::int64_t round, Rank from) {
    const auto weight = weights_.extract({round, from});
    auto arrived = arrived_.extract({round, from});
    if (arrived.empty() || !is_whole(arrived.mapped())) return std::nullopt;
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
      vector_fields(inner, difference.vectors, check);
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

  bool is_whole(const Difference& difference) const {
    return difference.vectors.size() == vectors_;
  }

  // The first vector, and those behind it.
  void vector_fields(Archive& a, std::vector<Packed>& vectors, const PackedCheck& check) const {
    if (vectors.empty()) vectors.emplace_back();
    packed_fields(a, vectors.front(), check);
    if (vectors_ == 1) return;
    std::vector<Packed> more(vectors.begin() + 1, vectors.end());
    a.items("more", more,
            [&check](Archive& inner, Packed& packed) { packed_fields(inner, packed, check); });
    a.require(more.size() < vectors_, "more", "has more vectors than a difference");
    vectors.resize(1);
    vectors.insert(vectors.end(), more.begin(), more.end());
  }

  const bool weighted_;
  const std::size_t vectors_;
  std::map<Key, Difference> arrived_;
  std::map<Key, double> weights_;
};

}  // namespace grapevine
