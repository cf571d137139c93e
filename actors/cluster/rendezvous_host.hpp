// RendezvousHost: collects the processes of a run before it begins.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/rendezvous.hpp"
#include "actors/run/control/live_settings.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {

// In the identity of a job: the step that it was resumed from.
inline constexpr char kResumedKey[] = "resumed from step";

// Process 0 waits longer for connections than the last process tries to make its own: see
// connect_timeout().
inline constexpr Duration kWaitForDiallers = std::chrono::seconds(4);

struct RendezvousConfig {
  std::int32_t count_ranks(std::int32_t process) const {
    return static_cast<std::int32_t>(std::count(process_of.begin(), process_of.end(), process));
  }

  std::int32_t processes = 1;            // that the run has places for, and
  std::int32_t initial = 1;              // the first ones, which begin it together
  std::vector<std::int32_t> process_of;  // by rank
  std::string where;                     // host:port, for messages
  std::string secret;                    // of the job, which all of its processes know; empty: none
  std::string job;                       // the launcher's name for it; empty: not known
  std::int64_t user = -1;
  std::string version;                          // of this program: all run the same
  std::map<std::string, std::string> identity;  // of the coordinator's job: all train the same
  // The identity of a job that begins with these settings; null: no setting changes.
  std::function<std::map<std::string, std::string>(const LiveSettings&)> identity_with = nullptr;
  std::string out;
  std::string transport;
  std::string job_text;  // of the coordinator's job, as job.toml has it
  std::uint64_t trace_run = 0;
  Duration timeout{std::chrono::seconds(60)};  // for all to join, and again for all to connect
  // Of a process whose number another process claims: it is silent where it does not answer.
  Duration answer_timeout{std::chrono::seconds(5)};
  SupervisorActor supervisor;
  BeginRun crew;  // the actors of process 0, but for its ranks
};

// Lives in the coordinator, process 0, as long as the supervisor. Collects one Join of every
// process that begins the run, answers all of them together, collects one Ready of each and gives
// their actors to the supervisor. An error of a process of this job (two live processes of one
// number, other options, a process that is missing at the deadline or dies after all have joined)
// is reported to all participants and to the supervisor, once. A process that dies, or is silent,
// while others are missing may be replaced.
//
// Once the run has begun, a process of the job may take the place of a lost one, or a place that
// was vacant from the start: the supervisor grants it, the process connects to the others, and its
// Ready gives its actors to the supervisor. A process with other options is refused at once, also
// where no place is free yet.
//
// A process that does not belong to this job is refused, without an effect on the job. It belongs
// if it proves that it knows the job's secret. Where the job has none, its launcher's name for the
// job decides; where that is not known, it belongs unless it is of another version, another number
// of processes, or another user's with other options.
class RendezvousState {
 public:
  const char* name = "rendezvous_host";

  void init(RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);
  caf::result<Admission> on_join(Join& join);
  Addresses on_ask_addresses(const AskAddresses& ask);
  caf::result<JobOffer> on_ask_job(const AskJob& ask);
  void on_ready(Ready& ready);
  void on_deadline(JoinDeadline deadline);
  void on_notice();
  void on_down(const caf::down_msg& down);
  void ask_for_place(const std::string& nonce);

 private:
  using Answer = caf::typed_response_promise<Admission>;
  struct Participant {
    Join join;
    Answer answer;
    Timestamp since{0};  // by the actor system's clock: when it joined
  };

  // Errors: the process belongs to another job.
  Expected<void> check_membership(const Join& join) const;
  // Errors: those of a process of this job.
  Expected<void> check_member(const Join& join) const;
  // `settings`: those that have changed since the run began.
  Expected<void> check_identity(const Join& join, const LiveSettings& settings) const;
  Expected<void> check_option(const std::string& who, const std::string& key,
                              const std::string& there, const LiveSettings& settings) const;
  bool has_changed(const std::string& key, const std::string& value,
                   const LiveSettings& settings) const;
  static std::string name_of(const Join& join);
  bool proves(const Join& join) const;
  Admission admission_for(const Admission& all, const Join& join) const;
  void ignore(const std::string& what);
  void admit_all();
  Duration timeout_of_connecting() const;
  Admission admission_to_all() const;
  Expected<void> check_asker(const AskJob& ask) const;
  Expected<void> check_options(const AskJob& ask, const LiveSettings& settings) const;
  void fill_offer(JobOffer& offer, const AskJob& ask, const Vacancy& vacancy);
  std::int32_t choose_place(const std::vector<std::int32_t>& lost);
  Expected<void> check_offered(const Vacancy& vacancy) const;
  bool is_early(const Join& join) const;
  bool is_late(const Join& join) const;
  void on_late_join(Join& join, Answer answer);
  void on_place(const std::string& nonce, std::int32_t process, const Place& place);
  void admit_late(Participant late, const Place& place);
  void on_late_ready(Ready& ready);
  void on_late_down(const caf::actor_addr& agent);
  void end_return(std::int32_t process, std::vector<PeerActor> peers);
  void give_place_back(std::int32_t process);
  void admit_if_complete();
  void seat(Participant participant);
  void refuse(Participant& participant, const Error& error);
  void on_claim(Participant second);
  void on_claim_settled(std::int32_t process, const std::string& nonce, bool answers);
  std::string silence_of(const Participant& participant) const;
  void refuse_without_place(Participant late, const Place& place);
  void refuse_all(const Error& error);
  static Admission refusal(const Error& error);
  void begin_run();
  std::string missing() const;

  RendezvousActor::stateful_pointer<RendezvousState> self_ = nullptr;
  RendezvousConfig config_;
  std::map<std::int32_t, Participant> participants_;  // by process
  std::vector<Participant> early_;                    // for vacant places, before the run has begun
  // Second ones of a number, until it is known whether the participant lives.
  std::map<std::int32_t, Participant> claims_;
  std::map<std::int32_t, Ready> ready_;
  std::string run_nonce_;  // random: of all links of the run
  // Once the run has begun: processes that wait for a place, by nonce, and until when; and those
  // that were granted one and are connecting.
  struct Waiting {
    Participant participant;
    Timestamp until{0};
  };
  std::map<std::string, Waiting> waiting_;
  std::set<std::int32_t> returning_;
  std::map<std::int32_t, std::int64_t> offered_;  // places that nobody has taken yet: which offer
  std::int64_t offers_ = 0;
  LogLimit refusals_;
  bool admitted_ = false;
  bool begun_ = false;
  bool refused_ = false;
};

RendezvousActor::behavior_type rendezvous_host(
    RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);

}  // namespace grapevine
