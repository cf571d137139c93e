// RendezvousHost: where the processes of a run find each other before it begins.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {

struct RendezvousConfig {
  std::int32_t processes = 1;
  std::vector<std::int32_t> peers;  // by process: the number of its ranks
  std::string where;                // host:port, for messages
  std::string secret;               // of the job, which all of its processes know; empty: none
  std::string job;                  // as the launcher calls it; empty: not known
  std::int64_t user = -1;
  std::string version;                          // of this program: all run the same
  std::map<std::string, std::string> identity;  // of the head's job: all train the same
  std::string out;
  Duration patience{std::chrono::seconds(60)};  // for all to join, and again for all to connect
  SupervisorActor supervisor;
  EvaluatorActor evaluator;  // null: no validation beside training
  CheckpointWriterActor writer;
  TracerActor tracer;
};

// Lives in the head, process 0, as long as the supervisor. Collects one Join of every process,
// answers all of them together, collects one Ready of every process and hands the crew to the
// supervisor. Whatever is wrong with a process of this job, two that claim one number, other
// options, one that does not come or dies after it has joined all, is told to everybody who came
// and to the supervisor, once. A process that dies while others are still to come may be replaced.
// Who comes later is sent away.
//
// A process that does not belong to this job is refused, and disturbs nobody. It belongs if it
// proves that it knows the job's secret. Where the job has none, it belongs by its launcher's name
// for the job; where that does not say either, unless it is of another version, another number of
// processes, or another user's with other options.
class RendezvousState {
 public:
  const char* name = "rendezvous_host";

  void init(RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);
  caf::result<Admission> on_join(Join& join);
  void on_ready(Ready& ready);
  void on_deadline(JoinDeadline deadline);
  void on_notice();
  void on_down(const caf::down_msg& down);

 private:
  using Answer = caf::typed_response_promise<Admission>;
  struct Participant {
    Join join;
    Answer answer;
  };

  // Errors: it belongs to another job.
  Expected<void> check_membership(const Join& join) const;
  // Errors: what is wrong with a process of this job.
  Expected<void> check_member(const Join& join) const;
  Expected<void> check_identity(const Join& join) const;
  static std::string name_of(const Join& join);
  bool proves(const Join& join) const;
  Admission admission_for(const Admission& all, const Join& join) const;
  void ignore(const std::string& what);
  void admit_all();
  void refuse_all(const Error& error);
  static Admission refusal(const Error& error);
  void begin_run();
  std::string missing() const;

  RendezvousActor::stateful_pointer<RendezvousState> self_ = nullptr;
  RendezvousConfig config_;
  std::map<std::int32_t, Participant> participants_;  // by process
  std::map<std::int32_t, Ready> ready_;
  LogLimit refusals_;
  bool admitted_ = false;
  bool begun_ = false;
  bool refused_ = false;
};

RendezvousActor::behavior_type rendezvous_host(
    RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);

}  // namespace grapevine
