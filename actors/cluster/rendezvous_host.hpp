// RendezvousHost: collects the processes of a run before it begins.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/cluster/join/one_time_nonces.hpp"
#include "actors/protocol/rendezvous.hpp"
#include "actors/run/control/live_settings.hpp"
#include "messages/text/log_limits.hpp"

namespace grapevine {

// In the identity of a job: the step that it was resumed from.
inline constexpr char kResumedKey[] = "resumed from step";

// The value of an option that an identity does not state.
inline constexpr char kNotStated[] = "nothing";

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
  // Within it a participant has to answer where another process claims its number.
  Duration answer_timeout{std::chrono::seconds(5)};
  // The same of a process that connects to a run which has begun, while another one waits for a
  // place: one is granted at a time. The returning process then has 2 * timeout to become ready.
  Duration waited_answer{std::chrono::milliseconds(2500)};
  Duration silence{std::chrono::seconds(60)};  // of a process of the run, until it counts as lost
  SupervisorActor supervisor;
  BeginRun crew;  // the actors of process 0, but for its ranks
};

// The settings of a run that have changed since it began, and those of its wirings in between.
struct ChangedSettings {
  LiveSettings now;
  std::vector<LiveSettings> earlier;
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
// Ready gives its actors to the supervisor. A process with other options is refused with the first
// answer of the supervisor, also where its place is not free yet; but where another process takes
// that place, only when that one has it or has failed.
//
// A process that does not belong to this job is refused, without an effect on the job. It belongs
// if it proves that it knows the job's secret, with a challenge that no process has used before:
// one whose challenge is too old is told to ask for another. Where the job has none, its launcher's
// name for the job decides; where that is not known, it belongs unless it is of another version,
// another number of processes, or another user's with other options.
class RendezvousState {
 public:
  const char* name = "rendezvous_host";

  void init(RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);
  Challenge on_ask_challenge() const;
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

  // Once the run has begun: a process that waits for a place.
  struct Waiting {
    Participant participant;
    Timestamp until{0};
    // It has waited before, until the process that had its place turned out to have ended.
    bool again = false;
  };
  // A participant that was asked whether it lives.
  enum class Life { answers, silent, ended };
  // Kinds of lines about refusals, each with a limit of its own: of questions and orders, and of
  // processes of the job that do not get a place.
  static constexpr char kOfMessages[] = "messages";
  static constexpr char kOfPlaces[] = "places";

  // Errors: the process belongs to another job.
  Expected<void> check_membership(const Join& join) const;
  // Errors: its agent is an actor of another process than `sender`.
  static Expected<void> check_agent(const Join& join, const caf::strong_actor_ptr& sender);
  // Errors: they are not all of its ranks, or actors of another process than that of `join`.
  Expected<void> check_ranks(const Ready& ready, const Join& join) const;
  // Errors: the challenge was used before or is too old. REQUIRES: the proof that covers it is
  // right.
  Expected<void> use_challenge(const std::string& process, const std::string& challenge);
  // Errors: those of a process of this job.
  Expected<void> check_member(const Join& join) const;
  Expected<void> check_identity(const Join& join, const ChangedSettings& settings) const;
  Expected<void> check_option(const std::string& who, const std::string& key,
                              const std::string& there, const ChangedSettings& settings) const;
  bool has_changed(const std::string& key, const std::string& value,
                   const ChangedSettings& settings) const;
  static std::string name_of(const Join& join);
  static int whole_seconds(Duration duration);
  bool proves(const Join& join) const;
  bool is_early(const Join& join) const;
  bool is_late(const Join& join) const;
  void on_early_join(Participant early);
  void on_member_join(Participant participant);
  void seat(Participant participant);
  void admit_if_complete();
  void admit_all();
  Duration timeout_of_connecting() const;
  Admission admission_to_all() const;
  Admission admission_for(const Admission& all, const Join& join) const;
  void begin_run();
  void on_participant_end(std::int32_t process);
  std::string missing() const;
  const char* kind_of(const Join& join) const;
  void ignore(const std::string& what, const char* kind = kOfMessages);
  static Admission refusal(const Error& error);
  void refuse(Answer& answer, const Error& error, const char* kind = kOfPlaces);
  void refuse_all(const Error& error);
  void refuse_start(Answer& answer, const Error& error);
  void refuse_member(Answer& answer, const Error& error, const char* kind);

  // In rendezvous_claims.cpp.
  void on_claim(Participant second);
  void on_claim_settled(std::int32_t process, const std::string& nonce, Life life);
  std::string silence_of(const Participant& participant) const;
  static Life life_after(const caf::error& error);

  // In rendezvous_late.cpp.
  Expected<void> check_asker(const AskJob& ask) const;
  Expected<void> check_options(const AskJob& ask, const ChangedSettings& settings) const;
  Expected<void> check_offered(const Vacancy& vacancy) const;
  bool is_awaited(std::int32_t process) const;
  Vacancy without_awaited(Vacancy vacancy) const;
  std::int32_t choose_place(const std::vector<std::int32_t>& lost);
  void fill_offer(JobOffer& offer, const AskJob& ask, const Vacancy& vacancy);
  JobOffer proven(JobOffer offer, const AskJob& ask) const;
  void on_late_join(Participant late);
  void wait_for_place(Waiting waiting);
  void on_place(const std::string& nonce, std::int32_t process, const Place& place);
  void admit_late(Participant late, const Place& place);
  void give_place_back(std::int32_t process);
  void refuse_without_place(Waiting waited, const Place& place);
  void ask_holder(Participant late, const Join& holder);
  void on_holder_without_answer(Participant late, const std::string& host, Life life);
  void ask_returning(std::int32_t process);
  bool is_returning(std::int32_t process, const std::string& nonce) const;
  void give_up_silent_returns();
  // From the grant of a place on, while another process waits for one.
  Duration time_to_become_ready() const { return 2 * config_.timeout; }
  void give_up_long_returns(Timestamp now, bool stood_still);
  void give_up_return(std::int32_t process, const std::string& why);
  void on_silent_return(std::int32_t process, const std::string& nonce, Duration silence);
  void on_late_ready(Ready& ready);
  void on_late_down(const caf::actor_addr& agent);
  void end_return(std::int32_t process, std::vector<PeerActor> peers);

  RendezvousActor::stateful_pointer<RendezvousState> self_ = nullptr;
  RendezvousConfig config_;
  std::map<std::int32_t, Participant> participants_;  // by process
  std::vector<Participant> early_;                    // for vacant places, before the run has begun
  // Processes that claim the number of a participant, by process, until the participant has
  // answered or not.
  std::map<std::int32_t, Participant> claims_;
  std::map<std::int32_t, Ready> ready_;
  std::string run_nonce_;  // random: of all links of the run
  OneTimeNonces challenges_;
  // Once the run has begun: by nonce; and the processes that were granted a place and are
  // connecting.
  std::map<std::string, Waiting> waiting_;
  std::set<std::int32_t> returning_;
  std::map<std::int32_t, Timestamp> asked_;     // of these: since when a question is open
  std::map<std::int32_t, Timestamp> due_;       // of these: when they have to be ready
  std::optional<Timestamp> silence_looked_at_;  // when give_up_silent_returns() was called last
  // By place: the number of its last offer, or of the last Join for it; erased once a process takes
  // it.
  std::map<std::int32_t, std::int64_t> offered_;
  std::int64_t offers_ = 0;
  LogLimits refusals_;
  bool overdue_ = false;  // all have joined in time, and one of them is asked whether it lives
  bool admitted_ = false;
  bool begun_ = false;
  bool refused_ = false;
};

RendezvousActor::behavior_type rendezvous_host(
    RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config);

}  // namespace grapevine
