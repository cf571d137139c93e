// EarlyRounds: messages of rounds that this rank has not reached yet. A part of the partial role.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "algorithms/collectives/partial_all_reduce.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class EarlyRounds {
 public:
  // `reduction` keeps early vectors itself.
  explicit EarlyRounds(std::shared_ptr<Reduction> reduction) : reduction_(std::move(reduction)) {}

  // A message of a later round.
  void hold(Rank from, std::int64_t round, Payload payload);
  // What has arrived for the round of `reduce`, which begins; returns the messages that follow.
  std::vector<OutgoingMessage> pass_to(PartialAllReduce& reduce, Rank rank);

  void fields(Archive& a);

 private:
  const std::shared_ptr<Reduction> reduction_;
  std::map<std::int64_t, std::vector<Activate>> activations_;  // by round
  CollectiveInbox tallies_;
};

}  // namespace grapevine
