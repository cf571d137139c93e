// The messages of the rendezvous: processes join a run.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/protocol/actor_list.hpp"
#include "actors/protocol/run.hpp"

namespace grapevine {

// A process that has a secret asks the coordinator for a random number, which its next proof
// covers: a recorded proof does not count again. Answered at once.
struct AskChallenge {};
struct Challenge {
  std::string nonce;  // for one proof, within seconds; empty: the job has no secret
};
// A process joins the run. Answered with Admission once all have joined, or with a refusal.
struct Join {
  std::int32_t process = 0;
  std::int32_t processes = 1;                   // of its job, from its launcher
  std::string job;                              // its launcher's name for it, or empty
  std::int64_t user = -1;                       // number of the user that runs it
  std::string version;                          // of the program
  std::map<std::string, std::string> identity;  // of the job: must be the same everywhere
  std::string host;
  std::string address;      // of its transport
  ProcessAgentActor agent;  // null: the coordinator itself
  std::string nonce;        // random: known to this process and the coordinator
  std::string challenge;    // of the coordinator; empty: the process has no secret
  std::string proof;        // that it knows the job's secret; empty: its job has none
};
struct Admission {
  std::string nonce;  // random, of the run
  std::string proof;  // that the coordinator knows the job's secret
  bool refused = false;
  Error error;                  // where refused
  bool stale = false;           // where refused: the challenge counts no longer, ask for another
  std::string out;              // the coordinator's output folder
  std::uint64_t trace_run = 0;  // names the run in its traces
  SupervisorActor supervisor;
  EvaluatorActor evaluator;
  bool validates = false;            // whether `evaluator` is there
  bool joins = false;                // a run that has begun, in the place of a lost process
  std::vector<std::int32_t> absent;  // other processes that are lost, or have not come yet
};
// A process that was admitted asks for the addresses of all, one page after the other. And the
// answer; none to a process that was not admitted.
struct AskAddresses {
  std::string nonce;       // of its Join
  std::int32_t first = 0;  // process
};
struct Addresses {
  std::int32_t first = 0;              // process, and
  std::vector<std::string> hosts;      // of those that follow it
  std::vector<std::string> addresses;  // of their transports
  std::string proof;                   // that the coordinator knows the job's secret
};
// A process that knows the address of the coordinator alone asks for the place of a lost process
// and for its job. And the answer.
struct AskJob {
  std::string version;  // of the program
  std::string nonce;    // random
  std::string proof;    // that it knows the job's secret; empty: it knows none
  // What this process was given of the job's identity: must be the same everywhere.
  std::map<std::string, std::string> options = {};
  std::string challenge = {};  // of the coordinator; empty: the process has no secret
};
struct JobOffer {
  bool refused = false;
  bool later = false;  // where refused: ask again
  Error error;         // where refused
  std::int32_t process = 0, processes = 0;
  std::string job;        // the launcher's name for it
  std::string transport;  // of all processes
  std::string text;       // the resolved job, as job.toml has it
  std::string proof;      // that the coordinator knows the job's secret
};
// Its transport is connected and its peers wait for StartTraining; or it could not.
struct Ready {
  std::int32_t process = 0;
  std::string nonce;  // of its Join
  bool failed = false;
  Error error;
  std::vector<PeerActor> peers;  // its own, by rank
};
struct JoinDeadline {
  bool connecting = false;  // of the second part, after all have joined
};
// Time to report the missing processes to the user.
struct JoinNotice {};
// Time to ask again for a place for the process that joined with `nonce`, or, where it has the
// place and connects, whether it lives.
struct AskPlaceAgain {
  std::string nonce;
};

using RendezvousActor = caf::typed_actor<
    caf::replies_to<AskChallenge>::with<Challenge>, caf::replies_to<Join>::with<Admission>,
    caf::replies_to<AskAddresses>::with<Addresses>, caf::replies_to<AskJob>::with<JobOffer>,
    caf::reacts_to<Ready>, caf::reacts_to<JoinDeadline>, caf::reacts_to<JoinNotice>,
    caf::reacts_to<AskPlaceAgain>>;

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskChallenge&) {
  return f(caf::meta::type_name("grapevine::AskChallenge"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Challenge& m) {
  return f(caf::meta::type_name("grapevine::Challenge"), m.nonce);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Join& m) {
  return f(caf::meta::type_name("grapevine::Join"), m.process, m.processes, m.job, m.user,
           m.version, m.identity, m.host, m.address, m.agent, m.nonce, m.challenge, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Admission& m) {
  return f(caf::meta::type_name("grapevine::Welcome"), m.nonce, m.proof, m.refused, m.error,
           m.stale, m.out, m.trace_run, m.supervisor, m.evaluator, m.validates, m.joins, m.absent);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskAddresses& m) {
  return f(caf::meta::type_name("grapevine::AskAddresses"), m.nonce, m.first);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Addresses& m) {
  return f(caf::meta::type_name("grapevine::Addresses"), m.first, m.hosts, m.addresses, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskJob& m) {
  return f(caf::meta::type_name("grapevine::AskJob"), m.version, m.nonce, m.proof, m.options,
           m.challenge);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobOffer& m) {
  return f(caf::meta::type_name("grapevine::JobOffer"), m.refused, m.later, m.error, m.process,
           m.processes, m.job, m.transport, m.text, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ready& m) {
  ActorList peers(m.peers);
  return f(caf::meta::type_name("grapevine::Ready"), m.process, m.nonce, m.failed, m.error,
           peers.process, peers.first, peers.numbers,
           caf::meta::load_callback([&] { return peers.restore(caf::context_of(&f)); }),
           caf::meta::save_callback([&] { return peers.publish(caf::context_of(&f)); }));
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinDeadline)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinNotice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskPlaceAgain)
