// The messages between the processes of a run.
#pragma once
#include <cstdint>
#include <string>

#include "actors/protocol/record.hpp"

namespace grapevine {

// The run is over, for the reason given: sent to every other process.
struct RunEnded {
  bool failed = false;
  Error error;  // where it failed
  bool interrupted = false;
  std::string checkpoint;  // the newest one written, or empty
  bool leaves = false;     // this process alone: the others train on
};
// The path for --resume from now on: the run's folder once it has a checkpoint, before that the
// checkpoint that this run has resumed from.
struct ResumeFrom {
  std::string path;
};
// The process is lost: its ranks are down.
struct ProcessLost {
  std::int32_t process = 0;
};
// The lost process is about to return: see RemoteTransport::expect_process().
struct ExpectProcess {
  std::int32_t process = 0;
  std::string host;
  std::string address;
};
// Asks the agent of a process whether the process lives; and the answer.
struct Ping {};
struct Pong {};
// Asks for the clock of a process, as its trace has it; and the answer.
struct AskClock {};
struct ClockReading {
  std::int64_t time_ns = 0;
  std::int64_t zero_ns = 0;  // of these times, by the monotonic clock
};

// The agent of the coordinator's supervisor in every other process.
using ProcessAgentActor = caf::typed_actor<
    caf::reacts_to<RunEnded>, caf::reacts_to<TraceClosed>, caf::reacts_to<TraceRefused>,
    caf::reacts_to<StopRequested>, caf::reacts_to<CheckpointRequested>, caf::reacts_to<ResumeFrom>,
    caf::reacts_to<ProcessLost>, caf::reacts_to<ExpectProcess>, caf::replies_to<Ping>::with<Pong>,
    caf::replies_to<AskClock>::with<ClockReading>>;

// Inside a process that joins a run: its rank has so many bytes of the state that another one
// sends. `trains`: it has all, and takes part from `step` on.
struct StateArrival {
  Rank rank = 0;
  std::int64_t bytes = 0;
  std::int64_t total = 0;
  bool trains = false;
  Step step = 0;
};
using JoiningAgentActor = ProcessAgentActor::extend<caf::reacts_to<StateArrival>>;

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ResumeFrom& m) {
  return f(caf::meta::type_name("grapevine::ResumeFrom"), m.path);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ProcessLost& m) {
  return f(caf::meta::type_name("grapevine::ProcessLost"), m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ExpectProcess& m) {
  return f(caf::meta::type_name("grapevine::ExpectProcess"), m.process, m.host, m.address);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ping&) {
  return f(caf::meta::type_name("grapevine::Ping"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Pong&) {
  return f(caf::meta::type_name("grapevine::Pong"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskClock&) {
  return f(caf::meta::type_name("grapevine::AskClock"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ClockReading& m) {
  return f(caf::meta::type_name("grapevine::ClockReading"), m.time_ns, m.zero_ns);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RunEnded& m) {
  return f(caf::meta::type_name("grapevine::RunEnded"), m.failed, m.error, m.interrupted,
           m.checkpoint, m.leaves);
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StateArrival)
