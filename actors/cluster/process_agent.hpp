// ProcessAgent: stands for the head's supervisor in every other process of a run.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/run/supervisor.hpp"

namespace grapevine {

struct ProcessAgentConfig {
  std::int32_t process = 1;
  std::int32_t processes = 2;
  std::string head;                       // host:port, for messages
  std::shared_ptr<RunObserver> observer;  // hears of the end, and of what is wrong with the trace
  // Tells this process's transport that a process is lost. Must not block.
  std::function<void(std::int32_t process)> process_down;
};

// Its process takes part in a run from here on.
struct AssignRun {
  SupervisorActor supervisor;
  std::vector<PeerActor> peers;  // of this process
  TracerActor tracer;            // of this process, or null
  std::string out;               // the head's output folder
};

// The interface that only its own process sees.
using LocalProcessAgent = ProcessAgentActor::extend<caf::reacts_to<AssignRun>>;

// Passes signals on to the supervisor, and to the transport that a process is lost; ends this
// process's actors when the run has ended or the head is gone, and says so to the observer, once.
class ProcessAgentState {
 public:
  const char* name = "process_agent";

  void init(LocalProcessAgent::stateful_pointer<ProcessAgentState> self, ProcessAgentConfig config);
  void assign(AssignRun run);
  void on_run_ended(const RunEnded& ended);
  void on_trace_closed(const TraceClosed& closed);
  void on_resume_from(const std::string& path) { resume_from_ = path; }
  void on_process_lost(std::int32_t process);
  void on_down(const caf::down_msg& down);
  SupervisorActor& supervisor() { return run_.supervisor; }

 private:
  void end();
  std::string hint_without_head() const;

  LocalProcessAgent::stateful_pointer<ProcessAgentState> self_ = nullptr;
  ProcessAgentConfig config_;
  AssignRun run_;
  RunResult result_;
  std::string resume_from_;  // as the head has said; empty: nothing yet
  bool ending_ = false;
  bool ended_ = false;
};

LocalProcessAgent::behavior_type process_agent(
    LocalProcessAgent::stateful_pointer<ProcessAgentState> self, ProcessAgentConfig config);

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AssignRun)
