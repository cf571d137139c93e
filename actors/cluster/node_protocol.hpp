// The messages between the nodes of a pool and the submitters of jobs. A pool is a first node and
// the nodes that joined it; all messages go to or from the first one.
//
// Every message that causes an action carries a seal (node_seal.hpp), since CAF delivers to every
// actor of a reachable process, published or not. CAF's own messages carry none: a program that
// reaches a port can end an actor there, and with it a job.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/cluster/node_seal.hpp"
#include "actors/protocol_wire.hpp"

namespace grapevine {

// Of these messages, each of which takes at most kMostControlBytes as a whole.
// All arguments of a job together, as bytes_of() counts them.
inline constexpr std::size_t kMostArgumentBytes = std::size_t{48} << 10;
// The text of an error; longer ones are cut.
inline constexpr std::size_t kLongestErrorText = std::size_t{40} << 10;
// A name, an address or a version.
inline constexpr std::size_t kLongestName = 1024;

inline std::size_t bytes_of(const std::vector<std::string>& arguments) {
  constexpr std::size_t kLength = 8;
  std::size_t bytes = 0;
  for (const std::string& argument : arguments) bytes += argument.size() + kLength;
  return bytes;
}
// Errors (bad_input): they are too long for a message.
Expected<void> check_length(const std::vector<std::string>& arguments);

// ---- from the pool to a node ----

// Start processes `first`..`first + count - 1` of a job's `processes`, beside those of the same job
// that the node runs already.
struct StartRanks {
  Seal seal;
  std::int64_t job = 0;
  std::vector<std::string> arguments;  // of `train`
  std::int32_t first = 0, count = 0, processes = 0;
  std::int32_t slot = 0;   // of the node, that the first of them takes
  std::int32_t here = 0;   // processes of the job on the node, with these
  std::uint16_t port = 0;  // where process 0 listens, on the first node
  bool grows = false;      // processes on other nodes may join the job later
  // To the first node: the host of another one, on another machine where there is one, that takes
  // part, or may later; empty: there is none.
  std::string other_host;
  std::string nonce;  // random: with the pool's secret it makes the job's
};
struct SignalRanks {
  Seal seal;
  std::int64_t job = 0;
  std::int32_t number = 0;    // of the signal
  std::int32_t process = -1;  // the one that receives it; -1: all
};
// The node no longer belongs to the pool.
struct PoolClosed {
  Seal seal;
  bool dropped = false;  // its processes did not end; else: the first node is about to end
};

// ---- inside a node's process ----

// This node belongs to that pool from now on.
struct JoinedPool {
  caf::actor_addr pool;
};

using NodeAgentActor = caf::typed_actor<caf::reacts_to<StartRanks>, caf::reacts_to<SignalRanks>,
                                        caf::reacts_to<PoolClosed>, caf::reacts_to<JoinedPool>>;

// ---- from a pool to the submitter of a job ----

struct JobOutput {
  Seal seal;
  std::int32_t process = 0;  // negative: the pool itself
  bool to_err = false;
  std::string line;
  bool continues = false;  // the next JobOutput is the rest of the line, or a part of that
};
struct JobEnded {
  Seal seal;
  bool failed = false;
  Error error;  // where it failed
};
struct JobEndHeard {};

using SubmitterActor =
    caf::typed_actor<caf::reacts_to<JobOutput>, caf::replies_to<JobEnded>::with<JobEndHeard>>;

// ---- to the pool ----

// A node offers its slots.
struct Enlist {
  Seal seal;
  std::string version;  // of the program: all run the same
  std::string host;     // its machine's name
  std::string address;  // host:port where it listens
  std::int32_t slots = 1;
  NodeAgentActor agent;
};
struct Enlisted {
  bool refused = false;
  Error error;                        // where refused
  std::int32_t nodes = 0, slots = 0;  // of the pool, with this node
};
// A node leaves. Answered when it may: a job that needs its processes is stopped before.
struct LeavePool {
  Seal seal;
  NodeAgentActor agent;
};
struct Left {};
struct RankOutput {
  Seal seal;
  std::int64_t job = 0;
  std::int32_t process = 0;
  bool to_err = false;
  std::string line;        // without its newline
  bool continues = false;  // the process's next RankOutput continues the line
};
struct RankExited {
  Seal seal;
  std::int64_t job = 0;
  std::int32_t process = 0;
  std::int32_t exit_code = -1;  // negative: a signal ended it, or it could not be started
  std::int32_t signal = 0;
  std::string error;  // why it could not be started
};
struct SubmitJob {
  Seal seal;
  std::string version;
  std::string user;                    // name@host, for messages
  std::vector<std::string> arguments;  // of `train`
  std::int32_t processes = 0;          // 0: one in each slot, at most `places` where that is not 0
  std::int32_t places = 0;             // most processes, with those that join later; 0: no more,
                                       // as far as the submitter knows
  bool continues = false;              // the others continue without a lost process
  std::int32_t restarts = 0;           // with it: ends of processes that are started again
  std::int32_t least = 0;  // with it: fewest processes of the run; 0: more than half of the first
  SubmitterActor submitter;
};
struct JobAccepted {
  bool refused = false;
  Error error;  // where refused
  std::int64_t job = 0;
  std::int32_t nodes = 0, processes = 0;
  std::string host;       // of process 0
  std::string directory;  // in which it runs
};
struct SignalJob {
  Seal seal;
  std::int64_t job = 0;
  std::int32_t number = 0;
};
// The submitter has written lines of output; until it reports them, the pool sends a bounded
// number.
struct OutputWritten {
  Seal seal;
  std::int64_t job = 0;
  std::int64_t lines = 0;  // JobOutputs since the job began
};
// Where is the job that runs now asked and changed (docs/control.md)? Answer with a ControlPlace.
struct AskControl {
  Seal seal;
};
struct ControlPlace {
  Seal seal;  // none where the sender of the question does not know the secret
  bool refused = false;
  Error error;  // where refused: no job runs, or it does not listen yet
  std::int64_t job = 0;
  std::uint16_t port = 0;  // on the machine of process 0, which is that of the first node
  std::string nonce;       // StartRanks': with the pool's secret it makes the job's
};
// The time that a job has to end may be over.
struct GraceOver {
  std::int64_t job = 0;
};
// Processes that were started again may have found no run that they could join.
struct JoinsOver {
  std::int64_t job = 0;
};
// A process that has lost a link is replaced, unless the run has ended meanwhile.
struct LossOver {
  std::int64_t job = 0;
  std::int32_t process = 0;
};
// End the running job, announce the end to all nodes, then call on_closed.
struct ClosePool {};

using NodePoolActor = caf::typed_actor<
    caf::replies_to<Greet>::with<Greeting>, caf::replies_to<Enlist>::with<Enlisted>,
    caf::replies_to<LeavePool>::with<Left>, caf::reacts_to<RankOutput>, caf::reacts_to<RankExited>,
    caf::replies_to<SubmitJob>::with<JobAccepted>, caf::reacts_to<SignalJob>,
    caf::reacts_to<OutputWritten>, caf::replies_to<AskControl>::with<ControlPlace>,
    caf::reacts_to<GraceOver>, caf::reacts_to<JoinsOver>, caf::reacts_to<LossOver>,
    caf::reacts_to<ClosePool>>;

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartRanks& m) {
  return f(caf::meta::type_name("grapevine::StartRanks"), m.seal, m.job, m.arguments, m.first,
           m.count, m.processes, m.slot, m.here, m.port, m.grows, m.other_host, m.nonce);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SignalRanks& m) {
  return f(caf::meta::type_name("grapevine::SignalRanks"), m.seal, m.job, m.number, m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PoolClosed& m) {
  return f(caf::meta::type_name("grapevine::PoolClosed"), m.seal, m.dropped);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobOutput& m) {
  return f(caf::meta::type_name("grapevine::JobOutput"), m.seal, m.process, m.to_err, m.line,
           m.continues);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobEnded& m) {
  return f(caf::meta::type_name("grapevine::JobEnded"), m.seal, m.failed, m.error);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobEndHeard&) {
  return f(caf::meta::type_name("grapevine::JobEndHeard"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Enlist& m) {
  return f(caf::meta::type_name("grapevine::Enlist"), m.seal, m.version, m.host, m.address, m.slots,
           m.agent);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Enlisted& m) {
  return f(caf::meta::type_name("grapevine::Enlisted"), m.refused, m.error, m.nodes, m.slots);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LeavePool& m) {
  return f(caf::meta::type_name("grapevine::LeavePool"), m.seal, m.agent);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Left&) {
  return f(caf::meta::type_name("grapevine::Left"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankOutput& m) {
  return f(caf::meta::type_name("grapevine::RankOutput"), m.seal, m.job, m.process, m.to_err,
           m.line, m.continues);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankExited& m) {
  return f(caf::meta::type_name("grapevine::RankExited"), m.seal, m.job, m.process, m.exit_code,
           m.signal, m.error);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SubmitJob& m) {
  return f(caf::meta::type_name("grapevine::SubmitJob"), m.seal, m.version, m.user, m.arguments,
           m.processes, m.places, m.continues, m.restarts, m.least, m.submitter);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobAccepted& m) {
  return f(caf::meta::type_name("grapevine::JobAccepted"), m.refused, m.error, m.job, m.nodes,
           m.processes, m.host, m.directory);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SignalJob& m) {
  return f(caf::meta::type_name("grapevine::SignalJob"), m.seal, m.job, m.number);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, OutputWritten& m) {
  return f(caf::meta::type_name("grapevine::OutputWritten"), m.seal, m.job, m.lines);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskControl& m) {
  return f(caf::meta::type_name("grapevine::AskControl"), m.seal);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ControlPlace& m) {
  return f(caf::meta::type_name("grapevine::ControlPlace"), m.seal, m.refused, m.error, m.job,
           m.port, m.nonce);
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinedPool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::GraceOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinsOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::LossOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ClosePool)
