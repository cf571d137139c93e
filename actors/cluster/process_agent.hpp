// ProcessAgent: the agent of the coordinator's supervisor in every other process of a run.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/protocol/run.hpp"
#include "actors/run/run_observer.hpp"

namespace grapevine {

struct ProcessAgentConfig {
  std::int32_t process = 1;
  std::int32_t processes = 2;
  std::string coordinator;                // host:port, for messages
  std::shared_ptr<RunObserver> observer;  // receives the end, errors of the trace, and joins
  // Reports a lost process to the transport of this process. Must not block.
  std::function<void(std::int32_t process)> process_down;
  // The same for a lost process that is about to return.
  std::function<void(const ExpectProcess& expected)> expect_process = nullptr;
  std::int64_t trace_zero_ns = 0;  // of the actor system's clock
};

// This process is admitted: the end of the supervisor ends it from now on.
struct WatchSupervisor {
  SupervisorActor supervisor;
  std::string out;  // the coordinator's output folder
};

// Its process takes part in this run from now on. After WatchSupervisor.
struct AssignRun {
  SupervisorActor supervisor;
  std::vector<PeerActor> peers;  // of this process
  TracerActor tracer;            // of this process, or null
};

// The interface inside its own process.
using LocalProcessAgent =
    JoiningAgentActor::extend<caf::reacts_to<WatchSupervisor>, caf::reacts_to<AssignRun>>;

// Forwards signals to the supervisor, and the loss of a process to the transport. Ends this
// process's actors when the run has ended or the coordinator is lost, and reports the end to the
// observer, once.
class ProcessAgentState {
 public:
  const char* name = "process_agent";

  void init(LocalProcessAgent::stateful_pointer<ProcessAgentState> self, ProcessAgentConfig config);
  void watch(const WatchSupervisor& watch);
  void assign(AssignRun run);
  void on_run_ended(const RunEnded& ended);
  void on_trace_closed(const TraceClosed& closed);
  void on_trace_refused(const TraceRefused& refused);
  void on_resume_from(const std::string& path) { resume_from_ = path; }
  void on_process_lost(std::int32_t process);
  void on_expect_process(const ExpectProcess& expected);
  void on_state_arrival(const StateArrival& arrival);
  void on_down(const caf::down_msg& down);
  void on_exception(const std::exception_ptr& problem);
  void report_end();
  ClockReading read_clock() const;
  SupervisorActor& supervisor() { return run_.supervisor; }

 private:
  bool is_other(std::int32_t process) const {
    return process >= 0 && process < config_.processes && process != config_.process;
  }
  void end();
  std::string hint_without_coordinator() const;

  LocalProcessAgent::stateful_pointer<ProcessAgentState> self_ = nullptr;
  ProcessAgentConfig config_;
  AssignRun run_;
  std::string out_;  // the coordinator's output folder
  RunResult result_;
  std::string resume_from_;  // from the coordinator; empty: nothing yet
  bool ending_ = false;
  bool ended_ = false;
  bool reported_ = false;  // to the observer
};

LocalProcessAgent::behavior_type process_agent(
    LocalProcessAgent::stateful_pointer<ProcessAgentState> self, ProcessAgentConfig config);

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::WatchSupervisor)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AssignRun)
