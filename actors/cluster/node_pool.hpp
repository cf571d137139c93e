// NodePool: the nodes that joined, and the one job that they run.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster/node_layout.hpp"
#include "actors/cluster/node_protocol.hpp"
#include "actors/cluster/output/output_window.hpp"
#include "actors/cluster/pool_job.hpp"
#include "actors/cluster/pool_sessions.hpp"
#include "messages/time.hpp"
#include "net/addresses.hpp"

namespace grapevine {

struct PoolStatus {
  std::int32_t nodes = 0, slots = 0;
  std::int64_t job = 0;        // 0: idle
  std::int32_t processes = 0;  // of the job
  std::string user;            // the submitter
};

struct NodePoolConfig {
  std::string secret;
  std::string version;
  std::string directory;                     // in which the first node runs its processes
  Duration grace{std::chrono::seconds(60)};  // between SIGTERM and SIGKILL
  // The same once a process was lost and process 0 has ended.
  Duration lost_grace{std::chrono::seconds(10)};
  Duration kill_grace{kKillTimeout};  // from SIGKILL to dropping a node
  // From the end of process 0 to SIGTERM for processes that were to join the run, and to the begin
  // of the grace of all others.
  Duration joins_timeout{std::chrono::seconds(2)};
  Duration end_timeout{std::chrono::seconds(10)};  // for the submitter to acknowledge the end
  // Limits of a job's output, in bytes: sent to the submitter and not acknowledged (more than
  // LineWriter::kDoneBytes, for which an acknowledgement may wait); kept here beyond that.
  std::size_t output_window = std::size_t{1} << 20;
  std::size_t output_backlog = std::size_t{8} << 20;
  std::function<Expected<ReservedPort>()> reserve_port;  // of the first node, for process 0
  // Of `train` with these arguments, one of them --resume: the processes for which the run has
  // places; 0: any number. Looks at a file of the first node.
  std::function<std::int32_t(const std::vector<std::string>& arguments)> places_of_run;
  // Both on a thread of the scheduler, where they must not block. `what`: one line, the reason.
  std::function<void(const PoolStatus&, const std::string& what)> on_change;
  std::function<void()> on_closed;  // after ClosePool
};

// Lives in the first node, which takes jobs once it has enlisted itself. One job at a time, on the
// first node and then the others in the order in which they joined; process 0 is on the first. A
// second job is refused. A job ends when all its processes have ended. Where it continues without
// lost processes (SubmitJob::continues), another one than process 0 that fails, also with its node,
// leaves a place: one that was killed is started again there, a bounded number of times; free slots
// take the places of a node that died; nodes that join take all that are left, then the places that
// none has had. Until the run has begun the others wait for all of its first processes: such a
// place has to be taken at once. Else a failed process or a node that dies ends the others, as a
// lost submitter and its signal do (SIGTERM, after the grace SIGKILL). A node whose processes do
// not end then either is dropped. As the reason, a death counts more than the losses of peers that
// follow from it.
class NodePoolState {
 public:
  const char* name = "node_pool";

  void init(NodePoolActor::stateful_pointer<NodePoolState> self, NodePoolConfig config);
  Greeting on_greet(const Greet& greet);
  Enlisted on_enlist(const Enlist& enlist);
  caf::result<Left> on_leave(const LeavePool& leave);
  JobAccepted on_submit(SubmitJob& submit);
  void on_output(RankOutput& output);
  void on_exited(const RankExited& exited);
  void on_signal(const SignalJob& signal);
  void on_written(const OutputWritten& written);
  ControlPlace on_ask_control(const AskControl& ask);
  void on_grace_over(GraceOver over);
  void on_joins_over(JoinsOver over);
  void on_loss_over(LossOver over);
  void on_close();
  void on_down(const caf::actor_addr& source);

 private:
  using LeaveAnswer = caf::typed_response_promise<Left>;
  struct Member {
    Enlist node;
    std::optional<LeaveAnswer> leaving;  // answered when its job has ended
    std::int64_t during_job = 0;         // that ran when it came; 0: none
  };
  // Whether its sender knows the secret, and it is not a repetition.
  template <class Message>
  bool trusts(const Message& message);
  Error why_distrusted(const Seal& seal) const;
  // Sent to a node that still belongs to the pool.
  template <class Message>
  void send_sealed(const Enlist& node, Message message);
  Expected<void> check_submission(const SubmitJob& submit) const;
  PoolStatus status() const;
  void changed(const std::string& what);
  ControlPlace control_place() const;
  std::int32_t places_of(const SubmitJob& submit) const;
  std::int32_t processes_of(const SubmitJob& submit) const;
  void begin_job(const SubmitJob& submit, const std::vector<NodeShare>& shares);
  std::string other_host() const;
  void start(std::int32_t first, std::int32_t count);
  PoolJob* job_of(std::int64_t id);
  PoolJob::Process* process_of(std::int64_t job, std::int32_t process);
  void signal_all(std::int32_t number);
  void stop_job(const std::string& why);
  Duration grace_after_loss() const;
  void ask_to_end(Duration grace);
  void begin_grace(Duration grace);
  void look_again_after(Duration time);
  void kill_job();
  void give_up_stuck_nodes();
  bool has_own_node() const;
  void tell_end();
  void say(std::int32_t process, bool to_err, std::string line);
  void on_line(PoolJob::Process& process, std::int32_t number, bool to_err, std::string line);
  void end_lines_of(std::int32_t process);
  bool may_lose_with(const Member& node, const std::vector<std::int32_t>& processes) const;
  bool continues_without(const Member& node, const std::vector<std::int32_t>& processes) const;
  void lose(const std::vector<std::int32_t>& processes, PoolJob::State state);
  void use_free_slots(const std::vector<std::int32_t>& lost, const std::string& why);
  void on_tolerated_exit(const RankExited& exited);
  void give_up_place(const RankExited& exited, const std::string& ended, const std::string& said);
  void doubt(const std::string& why);
  bool has_waited_for_the_head();
  void tell(const std::string& what);
  void wait_for_the_end(std::int32_t process);
  void place_later(std::int32_t process, const Enlist& node, std::int32_t slot);
  Member* member_of(const NodeAgentActor& agent);  // null: it is none
  void fill(const Member& member, const std::vector<std::int32_t>& places);
  void use_new_node(const Member& member);
  void use_nodes_that_came();
  void send_output(const JobLine& line);
  void finish_where_all_ended();
  void remove(const Member& member, const std::string& what);
  void close_where_idle();

  NodePoolActor::stateful_pointer<NodePoolState> self_ = nullptr;
  NodePoolConfig config_;
  std::vector<Member> members_;  // the first node's own, the others in the order they joined in
  std::optional<PoolJob> job_;
  std::optional<OutputWindow> output_;  // of the job, with it
  std::int64_t jobs_ = 0;
  std::optional<PoolSessions> sessions_;  // from init() on
  int unacknowledged_ends_ = 0;           // ends of jobs that the submitter has not acknowledged
  bool closing_ = false;
};

NodePoolActor::behavior_type node_pool(NodePoolActor::stateful_pointer<NodePoolState> self,
                                       NodePoolConfig config);

}  // namespace grapevine
