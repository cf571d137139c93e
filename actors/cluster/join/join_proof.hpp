// How a process and the coordinator of a job prove to each other that they know the job's secret.
#pragma once
#include <string>

#include "actors/protocol/rendezvous.hpp"
#include "net/token.hpp"

namespace grapevine {

// Its number and its process: the same text in all processes. Empty: the coordinator has none.
inline std::string name_of_agent(const ProcessAgentActor& agent) {
  return agent ? std::to_string(agent.id()) + "@" + caf::to_string(agent.node()) : "";
}

// Covers all members of `join` that the coordinator uses, except its options, which are compared.
inline std::string proof_of_join(const std::string& secret, const Join& join) {
  return mac_of(secret,
                {"join", std::to_string(join.process), std::to_string(join.processes), join.version,
                 join.host, join.address, join.nonce, name_of_agent(join.agent), join.challenge});
}

// Of the coordinator's answer to the process that joined with `nonce`.
inline std::string proof_of_admission(const std::string& secret, const std::string& nonce,
                                      const Admission& admission) {
  return mac_of(secret, {"welcome", nonce, admission.nonce, admission.out,
                         std::to_string(admission.trace_run)});
}
inline std::string proof_of_addresses(const std::string& secret, const std::string& nonce,
                                      const Addresses& page) {
  std::string all;
  for (const auto* texts : {&page.hosts, &page.addresses})
    for (const std::string& text : *texts) all += mac_of("", {text});
  return mac_of(secret, {"addresses", nonce, std::to_string(page.first), all});
}

// Of a process that asks for a job to join, and of the coordinator's answer.
inline std::string proof_of_question(const std::string& secret, const std::string& nonce,
                                     const std::string& challenge) {
  return mac_of(secret, {"ask job", nonce, challenge});
}
// Covers what the asking process uses, but for the text of a refusal: a refusal needs no proof.
inline std::string proof_of_offer(const std::string& secret, const std::string& nonce,
                                  const JobOffer& offer) {
  return mac_of(secret,
                {"offer job", nonce, std::to_string(offer.refused), std::to_string(offer.process),
                 std::to_string(offer.processes), offer.job, offer.transport, offer.text});
}

}  // namespace grapevine
