// How a process gets the random number of the coordinator that its proof covers.
#pragma once
#include <string>
#include <utility>

#include "actors/cluster/dial.hpp"
#include "actors/protocol/rendezvous.hpp"

namespace grapevine {

// For one proof, within seconds. A process without a secret proves nothing: its challenge is empty.
// Blocks; errors as of ask_actor().
inline Expected<std::string> ask_challenge(caf::actor_system& system,
                                           const RendezvousActor& rendezvous,
                                           const std::string& secret, Duration timeout,
                                           const Cancelled& cancelled) {
  if (secret.empty()) return std::string();
  auto challenge = ask_actor<Challenge>(system, rendezvous, timeout, AskChallenge{}, cancelled);
  if (!challenge) return challenge.error();
  return std::move(challenge->nonce);
}

}  // namespace grapevine
