// PoolJob: the processes of a pool's job, and the reason of its end. It sends nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster/node_layout.hpp"
#include "actors/cluster/node_protocol.hpp"
#include "actors/cluster/output/line_parts.hpp"
#include "actors/cluster/process_supervision.hpp"
#include "messages/expected.hpp"
#include "net/addresses.hpp"

namespace grapevine {

struct PoolJob {
  enum class State {
    vacant,  // a place that no process has had
    running,
    ended,  // for good
    lost,   // the others continue, and another one may take its place
    left,   // it was drained, or the run is ending: a node that joins may take its place
  };
  struct Process {
    State state = State::vacant;
    std::optional<Enlist> node;  // where it runs, or ran last
    std::int32_t slot = 0;       // of that node
    bool joins = false;          // started while the others run
    bool lost_link = false;      // and has ended: the run may end as well
    HeldError held;
    LineJoiner out, err;  // of lines that come in parts
  };
  // Later ones replace earlier ones as the reason for the job's failure.
  enum class Cause { none, stopped, lost, exited, killed, bad_input, node_died };
  using Write = std::function<void(std::int32_t process, std::string error)>;

  explicit PoolJob(Duration kill_grace) : grace(kill_grace) {}

  // Nothing where the job has no such process.
  Process* find(std::int32_t process);
  // "process 3 on node HOST:PORT".
  std::string where(std::int32_t process) const;
  bool all_ended() const;
  // The nodes where processes run, each once, in the order of the processes.
  std::vector<Enlist> nodes() const;
  // Those that run there.
  std::vector<std::int32_t> running_on(const NodeAgentActor& agent) const;
  std::int32_t running() const;
  std::vector<std::int32_t> places_in(State state) const;
  // One more than the highest slot that a process of the job takes there.
  std::int32_t slots_in_use(const Enlist& node) const;
  // The lowest slot of the node that no process of the job takes; nothing: all are taken.
  std::optional<std::int32_t> free_slot(const Enlist& node) const;
  std::int32_t free_slots(const Enlist& node) const;
  void place(std::int32_t process, const Enlist& node, std::int32_t slot, bool joins);
  // Whether other processes may come and go: it is not about to end.
  bool accepts_changes() const;
  bool may_lose(std::int32_t process) const { return accepts_changes() && process != 0; }
  bool may_lose(const std::vector<std::int32_t>& processes) const;
  bool head_ended() const { return processes.front().state == State::ended; }
  bool others_continue_after(const RankExited& exited) const;
  // Whether a process that ended so, after which the others continue, is to be started again.
  bool may_return(const RankExited& exited) const;
  // How that process ended, in the text of people.
  std::string end_of(const RankExited& exited) const;

  void blame(Cause why, Error what, std::int32_t process);
  // A line of the stderr of process 0. Returns whether it was for this object alone.
  bool take_report(const std::string& line);
  // How the job goes on with the processes that run, for people.
  std::string prospect() const;
  // Whether the run does not count on the process: it came later than the others, some of which
  // have ended with success, so that the run is ending or over.
  bool never_joined(const RankExited& exited) const;
  // REQUIRES: the job has that process.
  void on_exited(const RankExited& exited);
  // All processes have ended: completes `error`, and writes the errors that it does not repeat.
  void conclude(const Write& write);

  std::int64_t id = 0;
  std::string user;
  SubmitterActor submitter;
  std::uint64_t session = 0;           // of the submitter
  std::vector<Process> processes;      // all places
  std::int32_t first_processes = 0;    // of them, those that begin the job
  std::vector<std::string> arguments;  // of `train`
  bool continues = false;              // SubmitJob's, and
  bool spreads = false;                // processes of other nodes may join it
  std::int32_t restarts_left = 0;
  std::int32_t restarts = 0;
  std::int32_t least = 0;          // processes with which the run goes on
  ReservedPort port;               // where process 0 listens
  std::string nonce;               // of its secret
  std::uint16_t control_port = 0;  // of process 0; 0: it has reported none yet
  bool begun = false;              // the run has: until then all wait for each first process
  bool some_have_left = false;     // processes that have ended with success
  Cause cause = Cause::none;
  Error error;
  std::int32_t blamed = -1;  // the process that `error` quotes
  bool ending = false;       // asked to end: how processes end is no longer an error
  bool stopping = false;     // on request: not a failure
  bool interrupted = false;  // by a SIGINT
  GracePeriod grace;
  std::string hint;           // of resuming, from the error of a process
  std::string failed_before;  // the first process that was not started again
  // Fewer processes run than the run needs, since then; the reason.
  std::optional<Timestamp> short_since;
  std::string shortage;

 private:
  void begin(const RunBegin& reported);
  void blame_exit(const RankExited& exited, const std::string& who, const std::string& said);
};

}  // namespace grapevine
