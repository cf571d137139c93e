#include "actors/run/peer/early_messages.hpp"

#include <algorithm>
#include <utility>

#include "algorithms/roles/gossip/running_sum.hpp"

namespace grapevine {

void EarlyMessages::add(Envelope&& envelope) {
  if (drop_older_sum(envelope)) envelopes_.push_back(std::move(envelope));
}

// False: the sum itself is the older one, or a copy. Messages may overtake each other.
bool EarlyMessages::drop_older_sum(const Envelope& newer) {
  const Share* sum = RunningSum::in(newer.payload);
  if (sum == nullptr) return true;
  const auto kept =
      std::find_if(envelopes_.begin(), envelopes_.end(), [&newer](const Envelope& early) {
        return early.from == newer.from && RunningSum::in(early.payload) != nullptr;
      });
  if (kept == envelopes_.end()) return true;
  if (RunningSum::in(kept->payload)->round >= sum->round) return false;
  envelopes_.erase(kept);
  return true;
}

void EarlyMessages::drop_those_of(Rank from) {
  const auto is_of_rank = [from](const Envelope& early) { return early.from == from; };
  envelopes_.erase(std::remove_if(envelopes_.begin(), envelopes_.end(), is_of_rank),
                   envelopes_.end());
}

std::vector<Envelope> EarlyMessages::take() { return std::exchange(envelopes_, {}); }

}  // namespace grapevine
