#include "algorithms/roles/gossip/round_peers.hpp"

#include <algorithm>

namespace grapevine {

bool RoundPeers::expects(Rank peer, std::int64_t round) const {
  const auto it = gone_.find(peer);
  return it == gone_.end() || round <= it->second;
}

std::int64_t RoundPeers::return_all(std::int64_t round) {
  for (const auto& [peer, last_round] : gone_) round = std::max(round, last_round);
  gone_.clear();
  return round;
}

void RoundPeers::await(const Mixer& mixer, std::int64_t round, const Membership& members) {
  awaited_.clear();
  for (const Rank peer : mixer.sources(round))
    if (!mixer.has(round, peer) && expects(peer, round) && members.is_alive(peer))
      awaited_.insert(peer);
}

void RoundPeers::heard_of(const Mixer& mixer, std::int64_t round, Rank peer) {
  if (mixer.has(round, peer) || !expects(peer, round)) awaited_.erase(peer);
}

void RoundPeers::fields(Archive& a) {
  a.keyed("gone", "gone.", gone_,
          [](Archive& inner, std::int64_t& last_round) { inner.whole("last_round", last_round); });
}

}  // namespace grapevine
