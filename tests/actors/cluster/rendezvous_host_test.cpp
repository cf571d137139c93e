// What the rendezvous answers to the processes of a run.
#include "actors/cluster/rendezvous_host.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/io/middleman.hpp>

#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "actors/cluster/join/join_proof.hpp"
#include "actors/run/control/control_request.hpp"
#include "actors/run/control/run_state.hpp"
#include "actors/run/runtime.hpp"
#include "messages/exit_code.hpp"
#include "tests/actors/virtual_actors.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace rendezvous_host_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

// A supervisor that keeps the messages of the rendezvous.
struct Told {
  std::vector<PeerActor> peers;
  std::promise<std::size_t> crew;  // its agents; `peers` is set then
  std::promise<Error> failed;
  std::promise<ProcessReturned> returned;

  // Granted once it has been asked for often enough, if it is at all.
  Place place(AskPlace ask) {
    if (!refusal.empty() && refusals++ < most_refusals)
      return {false, refuses_for_now, refusal, {}, settings};
    if (++asked < states_settings_at) return {false, true, "got no answer", {}};
    if (asked < grants_at) return {false, true, "waits", {}, settings, earlier};
    if (one_at_a_time && connecting.value_or(ask.process) != ask.process)
      return {false, true, "has to wait for another change", {}, settings, earlier};
    connecting = ask.process;
    return {true, false, "", {3 - ask.process}, settings, earlier};
  }
  LiveSettings settings;
  std::vector<LiveSettings> earlier;
  std::string refusal;
  bool refuses_for_now = false;
  int refusals = 0, most_refusals = std::numeric_limits<int>::max();
  int asked = 0, states_settings_at = 1, grants_at = 1, returns = 0;
  bool one_at_a_time = false;  // grants no place while another process connects
  std::optional<std::int32_t> connecting;
  Vacancy vacancy;
};

SupervisorActor::behavior_type listener(SupervisorActor::pointer, std::shared_ptr<Told> told) {
  return {[told](BeginRun& crew) {
            told->peers = crew.peers;
            told->crew.set_value(crew.agents.size());
          },
          [](const StepReport&) {},
          [](RankFinished) {},
          [](RankSnapshot&) {},
          [](RankReport&) {},
          [told](const RankFailed& failed) { told->failed.set_value(failed.error); },
          [](const EpochEvaluated&) {},
          [](Progress) {},
          [](const CheckpointWritten&) {},
          [](StopRequested) {},
          [](CheckpointRequested) {},
          [](Watchdog) {},
          [](CollectAgain) {},
          [](const TraceClosed&) {},
          [](const TraceRefused&) {},
          [](ProcessClosed) {},
          [](const LinkLost&) {},
          [](AskAgain) {},
          [](const SnapshotRefused&) {},
          [](CompareClocks) {},
          [](const RankFigures&) {},
          [](const Traffic&) {},
          [](const ViewClosed&) {},
          [](const WaitReport&) {},
          [](const SettingsChecked&) {},
          [](const ModelShared&) {},
          [](SettingsTimeOver) {},
          [](const AveragedModels&) {},
          [](const StateStored&) {},
          [](AskTrafficAgain) {},
          [](AskRunState) { return RunState(); },
          [](const ControlRequest&) { return ControlReply(); },
          [told](AskPlace ask) { return told->place(ask); },
          [told](AskVacancy) { return told->vacancy; },
          [told](ProcessReturned& returned) {
            told->connecting.reset();
            if (told->returns++ == 0) told->returned.set_value(std::move(returned));
          }};
}

// The agent of a process; ignores the end of the run.
ProcessAgentActor::behavior_type stand_in(ProcessAgentActor::pointer) {
  return {[](const RunEnded&) {},      [](const TraceClosed&) {},
          [](const TraceRefused&) {},  [](StopRequested) {},
          [](CheckpointRequested) {},  [](const ResumeFrom&) {},
          [](ProcessLost) {},          [](const ExpectProcess&) {},
          [](Ping) { return Pong{}; }, [](AskClock) { return ClockReading{}; }};
}

// That of a process which is suspended.
ProcessAgentActor::behavior_type silent_agent(
    ProcessAgentActor::stateful_pointer<std::vector<caf::typed_response_promise<Pong>>> self) {
  return {[](const RunEnded&) {},
          [](const TraceClosed&) {},
          [](const TraceRefused&) {},
          [](StopRequested) {},
          [](CheckpointRequested) {},
          [](const ResumeFrom&) {},
          [](ProcessLost) {},
          [](const ExpectProcess&) {},
          [self](Ping) { return self->state.emplace_back(self->make_response_promise<Pong>()); },
          [](AskClock) { return ClockReading{}; }};
}

// That of a process whose connection is lost: a request fails at once.
ProcessAgentActor::behavior_type ended_agent(ProcessAgentActor::pointer) {
  return {[](const RunEnded&) {},
          [](const TraceClosed&) {},
          [](const TraceRefused&) {},
          [](StopRequested) {},
          [](CheckpointRequested) {},
          [](const ResumeFrom&) {},
          [](ProcessLost) {},
          [](const ExpectProcess&) {},
          [](Ping) -> caf::result<Pong> { return caf::sec::request_receiver_down; },
          [](AskClock) { return ClockReading{}; }};
}

PeerActor::behavior_type idle_peer(PeerActor::pointer) {
  return {[](StartTraining) {},
          [](GradientPart&) {},
          [](Gradient&) {},
          [](Envelope&) {},
          [](TimerFired) {},
          [](const PeerLost&) {},
          [](TakeSnapshot) {},
          [](Collect) {},
          [](FlushTrace) {},
          [](StallOver) {},
          [](const HoldForView&) {},
          [](AskTraffic) {},
          [](CloseView) {},
          [](const ViewCounts&) {},
          [](const InstallView&) {},
          [](QueryWaits) {},
          [](const CheckSettings&) {},
          [](const PartStored&) {}};
}

class RendezvousHostTest : public testing::Test {
 protected:
  void open(std::int32_t processes, Duration timeout = std::chrono::seconds(50),
            const std::string& job = "") {
    supervisor_ = system_.spawn(listener, told_);
    RendezvousConfig config;
    config.processes = processes;
    config.initial = processes - vacant_;
    config.process_of = process_of_;
    for (std::int32_t process = 0; process_of_.empty() && process < processes; ++process)
      config.process_of.insert(config.process_of.end(), static_cast<std::size_t>(peers_), process);
    config.where = "here:1";
    config.secret = secret_;
    config.job = job;
    config.user = 1000;
    config.version = "1";
    config.identity = identity_;
    config.identity_with = identity_with_;
    config.out = "runs/x";
    config.job_text = "lr = 0.1";
    config.timeout = timeout;
    config.answer_timeout = answer_timeout_;
    config.waited_answer = waited_answer_;
    config.silence = std::chrono::seconds(20);
    config.supervisor = supervisor_;
    rendezvous_ = system_.spawn(rendezvous_host, config);
  }

  Join join(std::int32_t process, std::int32_t processes = 3) {
    Join join;
    join.process = process;
    join.processes = processes;
    join.user = 1000;
    join.version = "1";
    join.identity = identity_;
    join.host = "host" + std::to_string(process);
    join.address = "address" + std::to_string(process);
    join.nonce = "nonce" + std::to_string(process);
    if (process != 0) join.agent = agents_.emplace_back(spawn_agent(process));
    return proven(std::move(join));
  }
  ProcessAgentActor spawn_agent(std::int32_t process) {
    if (silent_.count(process) > 0) return system_.spawn(silent_agent);
    return ended_.count(process) > 0 ? system_.spawn(ended_agent) : system_.spawn(stand_in);
  }
  // Of another process with that number.
  Join second_join(std::int32_t process, const std::string& host = "elsewhere",
                   std::int32_t processes = 3) {
    Join second = join(process, processes);
    second.nonce = "of process " + std::to_string(process) + " on " + host;
    second.host = host;
    return proven(std::move(second));
  }
  Join proven(Join join) {
    join.challenge = challenge();
    if (!secret_.empty()) join.proof = proof_of_join(secret_, join);
    return join;
  }
  AskJob proven(AskJob ask) {
    ask.challenge = challenge();
    ask.proof = proof_of_question(secret_, ask.nonce, ask.challenge);
    return ask;
  }
  // A process without a secret does not ask for one.
  std::string challenge() {
    if (secret_.empty()) return "";
    caf::scoped_actor self{system_};
    std::string nonce;
    self->request(rendezvous_, kDeadline, AskChallenge{})
        .receive([&](Challenge& challenge) { nonce = std::move(challenge.nonce); },
                 [](const caf::error& error) { ADD_FAILURE() << caf::to_string(error); });
    EXPECT_FALSE(nonce.empty());
    return nonce;
  }
  Ready ready(std::int32_t process) {
    Ready ready;
    ready.process = process;
    ready.nonce = "nonce" + std::to_string(process);
    const auto listed = std::count(process_of_.begin(), process_of_.end(), process);
    for (std::int64_t i = 0; i < (process_of_.empty() ? peers_ : listed); ++i)
      ready.peers.push_back(peer_actors_.emplace_back(system_.spawn(idle_peer)));
    return ready;
  }
  // The error of a Join that must be refused.
  std::string refusal_of(const Join& rejected) {
    const Admission admission = ask(rejected).get();
    EXPECT_TRUE(admission.refused);
    return admission.error.message;
  }
  // The job of three processes starts as if nothing had happened.
  void expect_start() {
    std::vector<std::future<Admission>> asked;
    for (std::int32_t process = 0; process < 3; ++process) asked.push_back(ask(join(process)));
    for (auto& answer : asked) {
      const Admission admission = answer.get();
      EXPECT_FALSE(admission.refused) << admission.error.message;
    }
    for (std::int32_t process = 0; process < 3; ++process)
      caf::anon_send(rendezvous_, ready(process));
    auto crew = told_->crew.get_future();
    ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
    EXPECT_EQ(crew.get(), 2U);
  }

  // To a process that knows the address alone.
  JobOffer offer_to(const AskJob& ask) {
    caf::scoped_actor self{system_};
    JobOffer result;
    self->request(rendezvous_, kDeadline, ask)
        .receive([&](JobOffer& offer) { result = offer; },
                 [](const caf::error& error) { ADD_FAILURE() << caf::to_string(error); });
    return result;
  }

  // The rendezvous answers all at once: each process waits on a thread of its own. The question is
  // on its way when this returns, so that joins arrive in the order of the calls.
  std::future<Admission> ask(Join join) { return ask(std::move(join), system_); }
  // As a process with that actor system.
  std::future<Admission> ask(Join join, caf::actor_system& of) {
    const auto self = std::make_shared<caf::scoped_actor>(of);
    auto answer = (*self)->request(rendezvous_, kDeadline, std::move(join));
    return std::async(std::launch::async, [self, answer]() mutable {
      Admission result;
      result.error.message = "no answer";
      answer.receive([&](Admission& admission) { result = admission; }, [](const caf::error&) {});
      return result;
    });
  }

  // By a process that does not wait for the answer.
  void join_without_waiting(const Join& join) {
    caf::scoped_actor self{system_};
    self->send(rendezvous_, join);
  }

  // That of another process: the middleman gives it a node of its own, and system_ has none.
  caf::actor_system& other_system() {
    if (other_) return *other_;
    other_config_.load<caf::io::middleman>();
    other_ = std::make_unique<caf::actor_system>(other_config_);
    return *other_;
  }
  Join with_agent_of_other(Join join) {
    join.agent = agents_.emplace_back(other_system().spawn(stand_in));
    return proven(std::move(join));
  }
  Ready with_peers_of_other(Ready ready) {
    for (PeerActor& peer : ready.peers)
      peer = peer_actors_.emplace_back(other_system().spawn(idle_peer));
    return ready;
  }

  // Process 2 returns to a run that has begun: it is admitted, and its agent never answers.
  void begin_silent_return() {
    peers_ = 1;
    open(3);
    expect_start();
    silent_ = {2};
    Join late = join(2);
    late.nonce = "of the silent one";
    EXPECT_TRUE(ask(proven(late)).get().joins);
  }

  // Page by page, as the process with `nonce` asks.
  Addresses all_addresses(const std::string& nonce) {
    Addresses all;
    caf::scoped_actor self{system_};
    for (bool more = true; more;) {
      const auto first = static_cast<std::int32_t>(all.hosts.size());
      self->request(rendezvous_, kDeadline, AskAddresses{nonce, first})
          .receive(
              [&](const Addresses& page) {
                more = !page.hosts.empty();
                EXPECT_EQ(page.first, first);
                EXPECT_EQ(page.proof, secret_.empty() || !more
                                          ? page.proof
                                          : proof_of_addresses(secret_, nonce, page));
                all.hosts.insert(all.hosts.end(), page.hosts.begin(), page.hosts.end());
                all.addresses.insert(all.addresses.end(), page.addresses.begin(),
                                     page.addresses.end());
                pages_ += more ? 1 : 0;
              },
              [&](const caf::error&) {
                ADD_FAILURE() << "no answer";
                more = false;
              });
    }
    return all;
  }
  void expect_addresses(const std::string& nonce, const std::vector<std::string>& expected) {
    const Addresses all = all_addresses(nonce);
    EXPECT_EQ(all.hosts, (std::vector<std::string>{"host0", "host1", "host2"}));
    EXPECT_EQ(all.addresses, expected);
  }

  Error told_error() {
    auto future = told_->failed.get_future();
    if (future.wait_for(kDeadline) != std::future_status::ready) return {Errc::failed, "nothing"};
    return future.get();
  }

  void TearDown() override {
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    supervisor_ = SupervisorActor{};
    for (const ProcessAgentActor& agent : agents_)
      caf::anon_send_exit(agent, caf::exit_reason::user_shutdown);
    agents_.clear();
    for (const PeerActor& peer : peer_actors_)
      caf::anon_send_exit(peer, caf::exit_reason::user_shutdown);
    peer_actors_.clear();
    rendezvous_ = RendezvousActor{};
  }

  std::optional<LogLines> log_;  // outlives the actors
  caf::actor_system_config other_config_;
  std::unique_ptr<caf::actor_system> other_;  // outlives those that know its actors
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Told> told_ = std::make_shared<Told>();
  SupervisorActor supervisor_;
  RendezvousActor rendezvous_;
  std::vector<ProcessAgentActor> agents_;
  std::vector<PeerActor> peer_actors_;
  std::set<std::int32_t> silent_, ended_;  // processes whose agents are made so from now on
  Duration answer_timeout_ = kDeadline;
  Duration waited_answer_ = kDeadline;
  std::int32_t vacant_ = 0;               // of the places, when the run begins
  std::int32_t peers_ = 0;                // of each process, or
  std::vector<std::int32_t> process_of_;  // by rank
  std::string secret_;
  std::map<std::string, std::string> identity_ = {{"lr", "0.1"}, {"model", "mlp"}};
  std::function<std::map<std::string, std::string>(const LiveSettings&)> identity_with_;
  int pages_ = 0;  // of addresses that came
};

TEST_F(RendezvousHostTest, AdmitsAllOnceAllHaveJoined) {
  open(3);
  std::vector<std::future<Admission>> asked;
  for (const std::int32_t process : {2, 0, 1}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) {
    const Admission admission = answer.get();
    EXPECT_FALSE(admission.refused) << admission.error.message;
    expect_addresses("nonce0", {"address0", "address1", "address2"});
    EXPECT_EQ(admission.out, "runs/x");
  }
  for (std::int32_t process = 0; process < 3; ++process)
    caf::anon_send(rendezvous_, ready(process));
  auto crew = told_->crew.get_future();
  ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
}

// Whatever process they are of: parameter servers, the last ranks, are in process 0.
TEST_F(RendezvousHostTest, GivesTheActorsByRank) {
  process_of_ = {0, 1, 2, 0};
  open(3);
  std::vector<std::future<Admission>> asked;
  for (const std::int32_t process : {2, 0, 1}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
  std::map<std::int32_t, std::vector<PeerActor>> given;
  for (const std::int32_t process : {1, 0, 2}) {
    const Ready own = ready(process);
    given[process] = own.peers;
    caf::anon_send(rendezvous_, own);
  }
  auto crew = told_->crew.get_future();
  ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
  const std::vector<PeerActor> by_rank = {given[0].at(0), given[1].at(0), given[2].at(0),
                                          given[0].at(1)};
  EXPECT_EQ(told_->peers, by_rank);
  told_->peers.clear();
}

// However long addresses are, no answer is longer than a message of the control plane may be.
TEST_F(RendezvousHostTest, AddressesComeInPages) {
  secret_ = "of the job";
  open(3);
  std::vector<std::future<Admission>> asked;
  std::vector<std::string> expected;
  for (std::int32_t process = 0; process < 3; ++process) {
    Join one = join(process);
    one.address = std::string(30'000, static_cast<char>('a' + process));
    expected.push_back(one.address);
    if (process == 2) {
      EXPECT_TRUE(all_addresses("nonce1").hosts.empty()) << "not all have joined";
    }
    asked.push_back(ask(proven(one)));
  }
  for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
  EXPECT_TRUE(all_addresses("of nobody").hosts.empty());
  expect_addresses("nonce1", expected);
  EXPECT_EQ(pages_, 3);
}

// The answer that grants it may come when nobody waits for it any more: the supervisor would keep
// the place for this process, and would refuse all others.
TEST_F(RendezvousHostTest, APlaceThatNobodyWaitsForIsGivenBack) {
  told_->grants_at = 1'000'000;
  peers_ = 1;
  open(3);
  expect_start();
  Join late = join(1);
  late.nonce = "another";
  join_without_waiting(proven(late));
  caf::anon_send_exit(late.agent, caf::exit_reason::kill);
  auto returned = told_->returned.get_future();
  ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
  const ProcessReturned back = returned.get();
  EXPECT_EQ(back.process, 1);
  EXPECT_TRUE(back.peers.empty());
}

// The place of a lost process: with the addresses of all, and which of them are lost.
TEST_F(RendezvousHostTest, AProcessTakesThePlaceOfALostOne) {
  told_->grants_at = 3;  // its loss becomes known later
  peers_ = 1;
  open(3);
  expect_start();
  Join late = join(1);
  late.address = "elsewhere";
  late.nonce = "another";
  const Admission admission = ask(proven(late)).get();
  EXPECT_FALSE(admission.refused) << admission.error.message;
  EXPECT_TRUE(admission.joins);
  EXPECT_EQ(admission.absent, std::vector<std::int32_t>{2});
  expect_addresses("another", {"address0", "elsewhere", "address2"});
  EXPECT_EQ(told_->asked, 3);
  caf::anon_send(rendezvous_, ready(1));  // with the nonce of the lost process
  Ready now = ready(1);
  now.nonce = "another";
  caf::anon_send(rendezvous_, now);
  auto returned = told_->returned.get_future();
  ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
  const ProcessReturned back = returned.get();
  EXPECT_EQ(back.process, 1);
  EXPECT_EQ(back.peers.size(), 1U);
  EXPECT_EQ(back.agent, late.agent);
}

// It waits until the run has begun, which does not wait for it.
TEST_F(RendezvousHostTest, AProcessForAVacantPlaceMayComeBeforeTheRunBegins) {
  vacant_ = 1;
  open(3);
  Join gone = join(2);
  gone.nonce = "of one that ends";
  join_without_waiting(proven(gone));
  caf::anon_send_exit(gone.agent, caf::exit_reason::kill);
  caf::scoped_actor self{system_};
  auto early = self->request(rendezvous_, kDeadline, join(2));  // before those below
  std::vector<std::future<Admission>> asked;
  for (const std::int32_t process : {1, 0}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) {
    const Admission admission = answer.get();
    EXPECT_FALSE(admission.refused) << admission.error.message;
    EXPECT_FALSE(admission.joins);
  }
  for (const std::int32_t process : {1, 0}) caf::anon_send(rendezvous_, ready(process));
  auto crew = told_->crew.get_future();
  ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
  early.receive(
      [](const Admission& admission) {
        EXPECT_FALSE(admission.refused) << admission.error.message;
        EXPECT_TRUE(admission.joins);
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

TEST_F(RendezvousHostTest, AProcessForAVacantPlaceIsToldThatTheStartHasFailed) {
  vacant_ = 1;
  open(3);
  caf::scoped_actor self{system_};
  auto early = self->request(rendezvous_, kDeadline, join(2));
  Join other = join(1);
  other.identity["lr"] = "0.7";
  const std::string why = refusal_of(proven(other));
  early.receive(
      [&](const Admission& admission) {
        EXPECT_TRUE(admission.refused);
        EXPECT_EQ(admission.error.message, why);
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
  EXPECT_EQ(told_error().message, why);
}

TEST_F(RendezvousHostTest, AProcessThatMayNotReturnIsSentAwayAlone) {
  told_->refusal = "cannot join: for a reason";
  open(3);
  expect_start();
  EXPECT_NE(refusal_of(join(1)).find("process 1 on host1 cannot join: for a reason"),
            std::string::npos);
}

// The options of a process that is started again are those of the newest checkpoint.
TEST_F(RendezvousHostTest, AReturningProcessMayHaveBeenStartedWithSettingsThatHaveChanged) {
  told_->settings = {{"lr", "0.2"}, {"wiring.density", "0.5"}};
  peers_ = 1;
  identity_ = {{"lr", "0.1"},
               {"model", "mlp"},
               {"wiring.density", "0.1"},
               {"wiring.pack", "f32"},
               {"wiring.servers", "1"}};
  told_->earlier = {{{"lr", "0.3"}}};
  // Of keys that the settings do not name, values that a wiring of the run has had.
  identity_with_ = [begun = identity_](const LiveSettings& settings) {
    auto now = begun;
    for (const auto& [key, value] : settings) now[key] = value;
    now["wiring.pack"] = settings.count("wiring.density") > 0 ? "f16" : "bf16";
    now["wiring.servers"] = "2";
    return now;
  };
  open(3);
  expect_start();
  struct Case {
    std::string key, value;
    bool admitted;
  };
  for (const Case& c : std::vector<Case>{{"lr", "0.1", true},
                                         {"lr", "0.2", true},
                                         {"lr", "0.15", true},
                                         {"wiring.density", "0.5", true},
                                         {"wiring.pack", "f16", true},
                                         {"wiring.pack", "bf16", true},
                                         {"wiring.pack", "q8", false},
                                         {"wiring.servers", "2", false},
                                         {"model", "linear", false}}) {
    Join late = join(1);
    late.nonce = c.key + c.value;
    late.identity[c.key] = c.value;
    const Admission admission = ask(proven(late)).get();
    EXPECT_EQ(!admission.refused, c.admitted)
        << c.key << " = " << c.value << ": " << admission.error.message;
    if (!c.admitted) {
      EXPECT_NE(admission.error.message.find("was started with " + c.key + " = " + c.value),
                std::string::npos)
          << admission.error.message;
      continue;
    }
    Ready failed = ready(1);  // so that the next one finds the place free
    failed.nonce = late.nonce;
    failed.peers.clear();
    failed.failed = true;
    caf::anon_send(rendezvous_, failed);
  }
}

// It receives the changed settings, and no others.
TEST_F(RendezvousHostTest, AReturningProcessHasTheOptionsOfProcessZeroWhereNothingHasChanged) {
  peers_ = 1;
  open(3);
  expect_start();
  Join other = join(2);
  other.nonce = "another";
  other.identity["lr"] = "0.2";
  EXPECT_NE(refusal_of(proven(other)).find("was started with lr = 0.2"), std::string::npos);
  auto returned = told_->returned.get_future();
  ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
  EXPECT_TRUE(returned.get().peers.empty()) << "its place is given back";
}

// Minutes may pass until a place is free.
TEST_F(RendezvousHostTest, AProcessWithOtherOptionsIsRefusedBeforeItsPlaceIsFree) {
  told_->settings = {{"lr", "0.2"}};
  told_->states_settings_at = 3;  // an answer without them says nothing about options
  told_->grants_at = 1'000'000;
  open(3);
  expect_start();
  Join other = join(1);
  other.identity["model"] = "linear";
  EXPECT_EQ(
      refusal_of(proven(other)),
      "process 1 on host1 was started with model = linear, process 0 with mlp: start all with "
      "the same options and job file");
  EXPECT_EQ(told_->asked, 3);
}

// Neither options nor patience would help it.
TEST_F(RendezvousHostTest, AProcessThatMayNotJoinIsToldSoWhateverItsOptions) {
  told_->refusal = "is too late: the run is ending";
  open(3);
  expect_start();
  Join other = join(1);
  other.identity["lr"] = "0.7";
  EXPECT_EQ(refusal_of(proven(other)), "process 1 on host1 is too late: the run is ending");
}

// The others begin without it, and it is told before they do.
TEST_F(RendezvousHostTest, AnEarlyProcessWithOtherOptionsIsRefusedAlone) {
  vacant_ = 1;
  open(3);
  Join other = join(2);
  other.identity["lr"] = "0.7";
  EXPECT_NE(refusal_of(proven(other)).find("was started with lr = 0.7, process 0 with 0.1"),
            std::string::npos);
  Join same = join(2);
  same.nonce = "another";
  same.identity[kResumedKey] = "12";  // its state comes from another rank
  caf::scoped_actor self{system_};
  auto early = self->request(rendezvous_, kDeadline, same);
  std::vector<std::future<Admission>> asked;
  for (const std::int32_t process : {1, 0}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
  for (const std::int32_t process : {1, 0}) caf::anon_send(rendezvous_, ready(process));
  early.receive(
      [](const Admission& admission) {
        EXPECT_FALSE(admission.refused) << admission.error.message;
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

// The job and a place for a process that knows the address and the secret alone.
TEST_F(RendezvousHostTest, OffersItsJobToAProcessThatKnowsTheSecret) {
  secret_ = "x";
  told_->vacancy = {{2}, false, ""};
  open(3);
  const AskJob question{"1", "mine", ""};
  EXPECT_TRUE(offer_to(proven(question)).later) << "it has not begun";
  expect_start();
  const AskJob ask = proven(question);
  const JobOffer offer = offer_to(ask);
  EXPECT_FALSE(offer.refused) << offer.error.message;
  EXPECT_EQ(offer.process, 2);
  EXPECT_EQ(offer.processes, 3);
  EXPECT_EQ(offer.text, "lr = 0.1");
  EXPECT_EQ(offer.proof, proof_of_offer("x", "mine", offer));
  told_->vacancy = {{}, true, "finds no place: none is lost"};
  EXPECT_TRUE(offer_to(proven(question)).later);
  struct Spoilt {
    std::function<void(AskJob&)> spoil;
    std::string why;
  };
  for (const auto& [spoil, why] : std::vector<Spoilt>{
           {[](AskJob& a) { a.proof.clear(); }, "does not know the secret"},
           {[](AskJob& a) { a.nonce = "other"; }, "does not know the secret"},
           {[this](AskJob& a) { a.challenge = challenge(); }, "does not know the secret"},
           {[](AskJob& a) { a.version = "2"; }, "runs version 2"}}) {
    AskJob spoilt = proven(question);
    spoil(spoilt);
    const JobOffer refused = offer_to(spoilt);
    EXPECT_TRUE(refused.refused);
    EXPECT_FALSE(refused.later);
    EXPECT_NE(refused.error.message.find(why), std::string::npos) << refused.error.message;
    EXPECT_TRUE(refused.text.empty()) << "the job was told to a process without the secret";
  }
}

// Several begin with the address alone, and each makes the job before it joins.
TEST_F(RendezvousHostTest, ProcessesThatAskAtOnceAreOfferedDifferentPlaces) {
  told_->vacancy = {{1, 2}, false, ""};
  open(3);
  expect_start();
  const auto offered = [&] { return offer_to({"1", "mine", ""}).process; };
  EXPECT_EQ(offered(), 1);
  EXPECT_EQ(offered(), 2);
  EXPECT_EQ(offered(), 1) << "the process that was to take it may have ended";
  Join taken = join(2);
  taken.nonce = "another";
  EXPECT_TRUE(ask(taken).get().joins);
  EXPECT_EQ(offered(), 2) << "it is lost again, and was offered to nobody since";
}

// Such a process knows its number, and the supervisor grants nothing yet, e.g. as the view changes.
TEST_F(RendezvousHostTest, APlaceThatAProcessWaitsForIsOfferedToNoOther) {
  told_->grants_at = 1'000'000;
  told_->vacancy = {{1, 2}, false, ""};
  open(3);
  expect_start();
  const auto offered = [&] { return offer_to({"1", "mine", ""}); };
  join_without_waiting(second_join(1));
  EXPECT_EQ(offered().process, 2);
  EXPECT_EQ(offered().process, 2) << "it was offered, and no process waits for it";
  join_without_waiting(second_join(2));
  const JobOffer none = offered();
  EXPECT_TRUE(none.refused);
  EXPECT_TRUE(none.later);
  EXPECT_EQ(none.error.message,
            "this process finds no place: other processes wait for those that are free");
}

// Its launcher starts it again.
TEST_F(RendezvousHostTest, APlaceWhoseProcessHasEndedAgainIsOfferedAfterTheOthers) {
  told_->grants_at = 1'000'000;
  told_->vacancy = {{1, 2}, false, ""};
  open(3);
  expect_start();
  const Join waits = second_join(1);
  join_without_waiting(waits);
  caf::anon_send_exit(waits.agent, caf::exit_reason::kill);
  ASSERT_EQ(told_->returned.get_future().wait_for(kDeadline), std::future_status::ready);
  EXPECT_EQ(offer_to({"1", "mine", ""}).process, 2);
  EXPECT_EQ(offer_to({"1", "mine", ""}).process, 1);
}

// The user may watch the output of process 0 alone.
TEST_F(RendezvousHostTest, ProcessZeroReportsThatItRefusesOtherOptions) {
  for (const bool begun : {false, true}) {
    SCOPED_TRACE(begun);
    told_ = std::make_shared<Told>();
    told_->vacancy = {{1}, false, ""};
    if (!begun) log_.emplace();
    open(3);  // each has a limit of its lines
    if (begun) expect_start();
    const std::string value = begun ? "0.7" : "0.6";
    EXPECT_TRUE(offer_to({"1", "mine", "", {{"lr", value}}}).refused);
    EXPECT_GT(log_->count({"refused: this process was started with lr = " + value}), 0U);
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

// A process that knows the address alone has the options of its command line before the job's.
TEST_F(RendezvousHostTest, OptionsThatDifferAreRefusedBeforeAJobIsOffered) {
  told_->vacancy = {{}, true, "finds no place: none is lost"};
  open(3);
  const auto answer_to = [&](const std::string& key, const std::string& value) {
    JobOffer result = offer_to({"1", "mine", "", {{key, value}}});
    EXPECT_TRUE(result.refused);
    return result;
  };
  const auto expect_refusal = [&](const std::string& key, const std::string& value) {
    const JobOffer offer = answer_to(key, value);
    EXPECT_FALSE(offer.later) << offer.error.message;
    EXPECT_NE(offer.error.message.find("this process was started with " + key + " = " + value +
                                       ", process 0 with "),
              std::string::npos)
        << offer.error.message;
  };
  EXPECT_TRUE(answer_to("lr", "0.1").later) << "it has not begun";
  expect_refusal("lr", "0.2");
  expect_start();
  EXPECT_TRUE(answer_to("lr", "0.1").later);
  expect_refusal("lr", "0.2");
  expect_refusal("augment", "flip");
  told_->vacancy.settings = {{"lr", "0.3"}};  // it receives the present one with its view
  EXPECT_TRUE(answer_to("lr", "0.2").later);
  expect_refusal("model", "linear");
  EXPECT_EQ(answer_to("model", "two\nlines").error.code, Errc::protocol);
  told_->vacancy = {{}, false, "is too late: the run is ending"};
  EXPECT_EQ(answer_to("model", "linear").error.message,
            "this process is too late: the run is ending");
}

// Others may come in its place.
TEST_F(RendezvousHostTest, AProcessThatFailsToReturnFreesThePlace) {
  open(3);
  expect_start();
  Join late = join(2);
  EXPECT_TRUE(ask(late).get().joins);
  caf::anon_send_exit(late.agent, caf::exit_reason::kill);
  auto returned = told_->returned.get_future();
  ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
  EXPECT_TRUE(returned.get().peers.empty());
}

// It is stopped while it connects: its connection lasts, and others wait for its return to end.
TEST_F(RendezvousHostTest, AProcessThatFallsSilentWhileItReturnsFreesThePlace) {
  answer_timeout_ = std::chrono::milliseconds(50);
  begin_silent_return();
  auto returned = told_->returned.get_future();
  ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
  const ProcessReturned back = returned.get();
  EXPECT_EQ(back.process, 2);
  EXPECT_TRUE(back.peers.empty());
  silent_.clear();
  Join next = join(2);
  next.nonce = "of the next one";
  EXPECT_TRUE(ask(proven(next)).get().joins);
}

// It is given up earlier where another process waits, also for another place: the supervisor grants
// one at a time.
TEST_F(RendezvousHostTest, ASilentProcessThatReturnsGivesWayToOneThatWaits) {
  waited_answer_ = std::chrono::milliseconds(50);
  told_->one_at_a_time = true;
  begin_silent_return();
  auto returned = told_->returned.get_future();
  EXPECT_NE(returned.wait_for(10 * waited_answer_), std::future_status::ready)
      << "nobody waits for a place";
  Join next = join(1);
  next.nonce = "of the next one";
  auto answer = ask(proven(next));
  ASSERT_EQ(returned.wait_for(kDeadline / 2), std::future_status::ready);
  const ProcessReturned back = returned.get();
  EXPECT_EQ(back.process, 2);
  EXPECT_TRUE(back.peers.empty());
  EXPECT_TRUE(answer.get().joins);
}

struct Case {
  std::function<void(Join&)> spoil;
  std::string expected;
};

// A process that knows the job's secret, or that the launcher counts to it, is of this job.
TEST_F(RendezvousHostTest, WhatIsWrongWithOneIsToldToAll) {
  const std::vector<Case> cases = {
      {[](Join& j) { j.process = 0; }, "process 0 was started twice"},
      {[](Join& j) { j.process = 7; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.processes = 4; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.version = "2"; }, "runs version 2, process 0 version 1"},
      {[](Join& j) { j.identity["lr"] = "0.2"; }, "lr = 0.2, process 0 with 0.1"},
      {[](Join& j) { j.identity.erase("model"); }, "model = nothing, process 0 with mlp"}};
  for (const std::string job : {"", "SLURM 7"})
    for (const Case& c : cases) {
      SCOPED_TRACE(c.expected + " " + job);
      secret_ = job.empty() ? "the job's own" : "";
      told_ = std::make_shared<Told>();
      open(3, std::chrono::seconds(50), job);
      // From one sender, so that the spoilt one comes second and both must hear of it.
      caf::scoped_actor self{system_};
      Join spoilt = join(1);
      spoilt.job = job;
      c.spoil(spoilt);
      auto first = self->request(rendezvous_, kDeadline, join(0));
      auto second = self->request(rendezvous_, kDeadline, proven(std::move(spoilt)));
      for (auto* answer : {&first, &second})
        answer->receive(
            [&](Admission& admission) {
              EXPECT_TRUE(admission.refused);
              EXPECT_NE(admission.error.message.find(c.expected), std::string::npos)
                  << admission.error.message;
            },
            [](const caf::error&) { ADD_FAILURE() << "no answer"; });
      EXPECT_NE(told_error().message.find(c.expected), std::string::npos);
      caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    }
}

// Without a secret, and where no launcher says more, options count as a mistake of this job's.
TEST_F(RendezvousHostTest, OtherOptionsOfAProcessOfThisSizeEndTheStart) {
  open(3);
  auto head = ask(join(0));
  Join other = join(1);
  other.identity["lr"] = "0.2";
  EXPECT_NE(refusal_of(other).find("lr = 0.2"), std::string::npos);
  EXPECT_TRUE(head.get().refused);
  EXPECT_NE(told_error().message.find("lr = 0.2"), std::string::npos);
}

TEST_F(RendezvousHostTest, AProcessOfAnotherJobDisturbsNobody) {
  const std::vector<Case> cases = {
      {[](Join& j) { j.version = "2"; }, "runs version 2"},
      {[](Join& j) { j.processes = 2; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.process = 7; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.process = -1; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.job = "SLURM 8"; }, "belongs to another job"},
      {[](Join& j) { j.proof = "something"; }, "belongs to another job"},
      {[](Join& j) { j.user = 1, j.identity["lr"] = "0.2"; }, "belongs to another job"},
      {[](Join& j) { j.agent = ProcessAgentActor{}; }, "without its own actor"},
      {[](Join& j) { j.host = "a\nb"; }, "an invalid text"},
      {[](Join& j) { j.version = std::string(5000, 'x'); }, "an invalid text"},
      {[](Join& j) { j.identity["lr"] = "0.1\n"; }, "an invalid text"},
      {[](Join& j) { j.identity[std::string(5000, 'x')] = "1"; }, "an invalid text"}};
  open(3, std::chrono::seconds(50), "SLURM 7");
  for (const Case& c : cases) {
    Join rejected = join(1);
    c.spoil(rejected);
    const std::string said = refusal_of(rejected);
    EXPECT_NE(said.find(c.expected), std::string::npos) << said;
  }
  expect_start();
}

TEST_F(RendezvousHostTest, WhoDoesNotKnowTheSecretDisturbsNobody) {
  secret_ = "the job's own";
  open(3);
  for (const std::string& proof :
       {std::string(), std::string(64, '0'), proof_of_join("another", join(1)),
        proof_of_join(secret_, join(2))}) {
    Join rejected = join(1);
    rejected.proof = proof;
    EXPECT_NE(refusal_of(rejected).find("does not know the secret"), std::string::npos);
  }
  expect_start();
}

// A program has read it on the network.
TEST_F(RendezvousHostTest, ARecordedProofDoesNotCountAgain) {
  log_.emplace();
  secret_ = "the job's own";
  open(3);
  const Join recorded = join(1);
  std::vector<std::future<Admission>> asked;
  asked.push_back(ask(recorded));
  constexpr std::size_t kTimes = 100;
  for (std::size_t i = 0; i < kTimes; ++i) {
    const Admission admission = ask(recorded).get();
    EXPECT_TRUE(admission.refused);
    EXPECT_TRUE(admission.stale);
    EXPECT_TRUE(admission.out.empty()) << "the run was told to another program";
    EXPECT_EQ(admission.error.message,
              "process 1 on host1 sent a proof that was used before, or is older than 10 s");
  }
  Join with_own_agent = recorded;
  with_own_agent.agent = agents_.emplace_back(spawn_agent(1));
  EXPECT_NE(refusal_of(with_own_agent).find("does not know the secret"), std::string::npos);
  const std::vector<std::string> line = {
      "[warning] refused: process 1 on host1 sent a proof that was used before"};
  EXPECT_GE(log_->count(line), 1U) << log_->text();
  EXPECT_LT(log_->count(line), kTimes / 2) << log_->text();
  for (const std::int32_t process : {0, 2}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
  EXPECT_EQ(told_->failed.get_future().wait_for(std::chrono::seconds(0)),
            std::future_status::timeout);
}

// The user finds each reason in the log.
TEST_F(RendezvousHostTest, AProcessWithoutTheSecretHidesNoLineAboutAnotherOne) {
  log_.emplace();
  secret_ = "the job's own";
  open(3);
  expect_start();
  Join unknown = second_join(1);
  unknown.version = "2";
  unknown.proof = "none";
  constexpr std::size_t kTimes = 100;
  for (std::size_t i = 0; i < kTimes; ++i)
    EXPECT_NE(refusal_of(unknown).find("does not know the secret"), std::string::npos);
  Join old = second_join(1);
  old.version = "2";
  EXPECT_NE(refusal_of(proven(old)).find("runs version 2"), std::string::npos);
  const std::vector<std::string> line = {"process 1 on elsewhere does not know the secret"};
  EXPECT_GE(log_->count(line), 1U) << log_->text();
  EXPECT_LT(log_->count(line), kTimes / 2) << log_->text();
  EXPECT_EQ(log_->count({"refused: process 1 on elsewhere runs version 2"}), 1U) << log_->text();
}

TEST_F(RendezvousHostTest, ARecordedQuestionForTheJobDoesNotCountAgain) {
  secret_ = "the job's own";
  told_->vacancy = {{2}, false, ""};
  open(3);
  expect_start();
  const AskJob question = proven(AskJob{"1", "mine", ""});
  EXPECT_FALSE(offer_to(question).refused);
  const JobOffer again = offer_to(question);
  EXPECT_TRUE(again.refused);
  EXPECT_TRUE(again.later) << "a process whose challenge was too old asks for another one";
  EXPECT_EQ(again.error.message,
            "this process sent a proof that was used before, or is older than 10 s");
  EXPECT_TRUE(again.text.empty() && again.proof.empty()) << "the job was told to another program";
}

// Of another rendezvous of a job with this secret, or none.
TEST_F(RendezvousHostTest, AChallengeOfAnotherRendezvousDoesNotCount) {
  secret_ = "the job's own";
  open(3);
  Join other = join(1);
  caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  open(3);
  for (const std::string& challenge : {other.challenge, std::string(), std::string("1.ab.cd")}) {
    other.challenge = challenge;
    other.proof = proof_of_join(secret_, other);
    EXPECT_TRUE(ask(other).get().stale) << challenge;
  }
  expect_start();
}

// Questions of other programs cost nothing that is kept.
TEST_F(RendezvousHostTest, AnyNumberOfQuestionsLeavesAChallengeValid) {
  secret_ = "the job's own";
  open(2);
  const Join first = join(1, 2);
  for (int i = 0; i < 5000; ++i) caf::anon_send(rendezvous_, AskChallenge{});
  auto head = ask(join(0, 2)), other = ask(first);
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(other.get().refused);
}

// It would be process 0 for the others.
TEST_F(RendezvousHostTest, AProcessZeroWithoutASenderEndsTheStart) {
  secret_ = "the job's own";
  open(3);
  caf::anon_send(rendezvous_, join(0));
  EXPECT_EQ(told_error().message,
            "process 0 was started twice, here and on host0: give each process a rank of its own");
}

TEST_F(RendezvousHostTest, TheHeadProvesThatItKnowsTheSecret) {
  secret_ = "the job's own";
  open(1);
  const Admission admission = ask(join(0, 1)).get();
  EXPECT_EQ(admission.proof, proof_of_admission(secret_, "nonce0", admission));
  EXPECT_NE(admission.proof, proof_of_admission(secret_, "nonce1", admission));
  EXPECT_NE(admission.proof, proof_of_admission("guess", "nonce0", admission));
}

// Killed while others are still to come: its launcher may start it again.
TEST_F(RendezvousHostTest, AProcessThatDiesEarlyIsReplacedByASecondOne) {
  open(3);
  const Join first = join(1);
  auto lost = ask(first);
  caf::anon_send_exit(first.agent, caf::exit_reason::kill);
  // Its request ends with its participation.
  lost.get();
  expect_start();
}

// Two live processes cannot both be process 1.
TEST_F(RendezvousHostTest, TwoLiveProcessesWithOneNumberEndTheStart) {
  open(3);
  caf::scoped_actor self{system_};
  auto first = self->request(rendezvous_, kDeadline, join(1));
  Join other = join(1);
  other.host = "elsewhere";
  const std::string why =
      "process 1 was started twice, on host1 and elsewhere: give each process a rank of its own";
  EXPECT_EQ(refusal_of(other), why);
  first.receive([&](const Admission& admission) { EXPECT_EQ(admission.error.message, why); },
                [](const caf::error&) { ADD_FAILURE() << "no answer"; });
  EXPECT_EQ(told_error().message, why);
}

// Suspended, or of a machine that has failed: its connection lasts until its silence is long
// enough.
TEST_F(RendezvousHostTest, ASilentProcessIsReplacedByASecondOne) {
  answer_timeout_ = std::chrono::milliseconds(50);
  open(3);
  silent_ = {1};
  Join silent = join(1);
  silent.nonce = "of the silent one";
  silent.host = "elsewhere";
  caf::scoped_actor self{system_};
  auto first = self->request(rendezvous_, kDeadline, silent);
  silent_.clear();
  expect_start();
  first.receive(
      [](const Admission& admission) {
        EXPECT_TRUE(admission.refused);
        const std::string& why = admission.error.message;
        EXPECT_EQ(why.rfind("process 1 on elsewhere joined ", 0), 0U) << why;
        EXPECT_NE(why.find(" has not answered for 0 s: process 1 on host1 has taken its place"),
                  std::string::npos)
            << why;
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

// Whichever of the two ends while the first one is asked.
TEST_F(RendezvousHostTest, OneOfTwoProcessesWithOneNumberMayEndMeanwhile) {
  for (const bool first_ends : {true, false}) {
    SCOPED_TRACE(first_ends);
    told_ = std::make_shared<Told>();
    open(3);
    silent_ = {1};
    const Join silent = join(1);
    silent_.clear();
    Join second = join(1);
    second.nonce = first_ends ? "nonce1" : "of the second one";
    Join first = silent;
    first.nonce = first_ends ? "of the first one" : "nonce1";
    caf::scoped_actor self{system_};
    auto one = self->request(rendezvous_, kDeadline, first);
    auto two = self->request(rendezvous_, kDeadline, second);
    std::vector<std::future<Admission>> asked;
    for (const std::int32_t process : {0, 2}) asked.push_back(ask(join(process)));
    caf::anon_send_exit(first_ends ? first.agent : second.agent, caf::exit_reason::kill);
    for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
    (first_ends ? two : one)
        .receive([](const Admission& admission) { EXPECT_FALSE(admission.refused); },
                 [](const caf::error&) { ADD_FAILURE() << "no answer"; });
    for (const std::int32_t process : {0, 1, 2}) caf::anon_send(rendezvous_, ready(process));
    EXPECT_EQ(told_->crew.get_future().wait_for(kDeadline), std::future_status::ready);
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

// Its connection is lost: the request fails at once, and says nothing about silence.
TEST_F(RendezvousHostTest, AProcessThatHasEndedIsReplacedByASecondOne) {
  open(3);
  ended_ = {1};
  Join gone = second_join(1);
  ended_.clear();
  caf::scoped_actor self{system_};
  auto first = self->request(rendezvous_, kDeadline, gone);
  expect_start();
  first.receive(
      [](const Admission& admission) {
        EXPECT_TRUE(admission.refused);
        EXPECT_EQ(admission.error.message, "process 1 on elsewhere is gone");
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

TEST_F(RendezvousHostTest, ASecondProcessFindsThatTheFirstOneHasEndedOnceAllHaveJoined) {
  open(2);
  ended_ = {1};
  auto head = ask(join(0, 2)), gone = ask(join(1, 2));
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(gone.get().refused);
  const std::string why = refusal_of(second_join(1, "elsewhere", 2));
  EXPECT_EQ(why.rfind("process 1 on host1 ended before training began", 0), 0U) << why;
  EXPECT_EQ(told_error().message, why);
}

// Of three processes with one number none is asked twice.
TEST_F(RendezvousHostTest, AThirdProcessWithOneNumberEndsTheStart) {
  open(3);
  silent_ = {1};
  caf::scoped_actor self{system_};
  auto first = self->request(rendezvous_, kDeadline, join(1));
  auto second = self->request(rendezvous_, kDeadline, second_join(1, "second"));
  auto third = self->request(rendezvous_, kDeadline, second_join(1, "third"));
  const std::string why =
      "process 1 was started twice, on second and third: give each process a rank of its own";
  for (auto* answer : {&first, &second, &third})
    answer->receive([&](const Admission& admission) { EXPECT_EQ(admission.error.message, why); },
                    [](const caf::error&) { ADD_FAILURE() << "no answer"; });
  EXPECT_EQ(told_error().message, why);
}

// It is asked nothing: it is this process.
TEST_F(RendezvousHostTest, AnotherProcessZeroEndsTheStart) {
  open(3);
  auto head = ask(join(0));
  Join other = second_join(1);
  other.process = 0;
  const std::string why = refusal_of(proven(other));
  EXPECT_EQ(why,
            "process 0 was started twice, on host0 and elsewhere: give each process a rank of its "
            "own");
  EXPECT_EQ(head.get().error.message, why);
}

// The time to join is over while a participant is asked whether it lives: none is missing.
TEST_F(RendezvousHostTest, AfterTheDeadlineTheEndOfAParticipantEndsTheStart) {
  log_.emplace();
  open(3);
  silent_ = {1};
  caf::scoped_actor self{system_};
  std::vector<decltype(self->request(rendezvous_, kDeadline, Join{}))> asked;
  const Join ends = join(2);
  for (const Join& one : {join(1), second_join(1), join(0), ends})
    asked.push_back(self->request(rendezvous_, kDeadline, one));
  self->send(rendezvous_, JoinNotice{});
  self->send(rendezvous_, JoinDeadline{false});
  caf::anon_send_exit(ends.agent, caf::exit_reason::kill);
  const Error error = told_error();
  EXPECT_EQ(error.message.rfind("process 2 on host2 ended before training began", 0), 0U)
      << error.message;
  EXPECT_EQ(log_->count({"waiting for 0 of 3"}), 0U);
  for (auto& answer : asked)
    answer.receive(
        [&](const Admission& admission) { EXPECT_EQ(admission.error.message, error.message); },
        [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

// A process that claims the number of another one hears of it as well.
TEST_F(RendezvousHostTest, TheDeadlineEndsAClaim) {
  open(3);
  silent_ = {1};
  caf::scoped_actor self{system_};
  auto first = self->request(rendezvous_, kDeadline, join(1));
  auto second = self->request(rendezvous_, kDeadline, second_join(1));
  self->send(rendezvous_, JoinDeadline{false});
  for (auto* answer : {&first, &second})
    answer->receive(
        [](const Admission& admission) {
          EXPECT_EQ(admission.error.message.rfind("process 0, 2 did not join within 50 s", 0), 0U)
              << admission.error.message;
        },
        [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

// The participant trains, and may be lost later.
TEST_F(RendezvousHostTest, ASecondProcessWaitsForThePlaceOnceTheRunHasBegun) {
  open(2);
  silent_ = {1};
  auto head = ask(join(0, 2)), other = ask(join(1, 2));
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(other.get().refused);
  caf::scoped_actor self{system_};
  auto second = self->request(rendezvous_, kDeadline, second_join(1, "elsewhere", 2));
  for (std::int32_t process = 0; process < 2; ++process) self->send(rendezvous_, ready(process));
  second.receive(
      [](const Admission& admission) {
        EXPECT_FALSE(admission.refused) << admission.error.message;
        EXPECT_TRUE(admission.joins);
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
}

// The others connect to the silent process: its place cannot be another's any more.
TEST_F(RendezvousHostTest, ASecondProcessNamesTheSilentOneOnceAllHaveJoined) {
  answer_timeout_ = std::chrono::milliseconds(50);
  open(2);
  silent_ = {1};
  auto head = ask(join(0, 2)), silent = ask(join(1, 2));
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(silent.get().refused);
  const std::string why = refusal_of(join(1, 2));
  EXPECT_NE(
      why.find(" has not answered for 0 s, and process 1 on host1 asks for its place: end the "
               "silent process, and start the job again"),
      std::string::npos)
      << why;
  const Error error = told_error();
  EXPECT_EQ(error.code, Errc::peer_down);
  EXPECT_EQ(error.message, why);
}

// Of a run that has begun.
TEST_F(RendezvousHostTest, TheProcessThatHasThePlaceAnswers) {
  told_->refusal = kPlaceTaken;
  open(3);
  expect_start();
  EXPECT_EQ(refusal_of(second_join(1)), std::string("process 1 on elsewhere ") + kPlaceTaken +
                                            " The one on host1 has the place and answers");
}

TEST_F(RendezvousHostTest, TheSilentProcessThatHasThePlaceIsNamed) {
  answer_timeout_ = std::chrono::milliseconds(50);
  told_->refusal = kPlaceTaken;
  silent_ = {1};
  open(3);
  expect_start();
  EXPECT_EQ(refusal_of(second_join(1)),
            std::string("process 1 on elsewhere finds its place taken: the one on host1 ") +
                kPlaceOfSilent + ": end that process, or try again in 20 s");
}

// Its loss is known a moment later.
TEST_F(RendezvousHostTest, WhereTheProcessThatHadThePlaceHasEndedTheSupervisorIsAskedAgain) {
  told_->refusal = kPlaceTaken;
  told_->most_refusals = 1;
  ended_ = {1};
  open(3);
  expect_start();
  ended_.clear();
  const Admission admission = ask(second_join(1)).get();
  EXPECT_FALSE(admission.refused) << admission.error.message;
  EXPECT_TRUE(admission.joins);
}

TEST_F(RendezvousHostTest, AProcessThatHasEndedAndIsNotLostIsNamed) {
  told_->refusal = kPlaceTaken;
  ended_ = {1};
  open(3);
  expect_start();
  ended_.clear();
  const Admission admission = ask(second_join(1)).get();
  EXPECT_TRUE(admission.refused);
  EXPECT_EQ(admission.error.code, Errc::peer_down) << "its launcher may start it again";
  EXPECT_EQ(admission.error.message,
            "process 1 on elsewhere finds its place taken: the one on host1 has ended, and does "
            "not count as lost yet: start it again");
}

TEST_F(RendezvousHostTest, AProcessThatDiesAfterAllHaveJoinedEndsTheStart) {
  open(2);
  auto head = ask(join(0, 2));
  const Join other = join(1, 2);
  auto answer = ask(other);
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(answer.get().refused);
  caf::anon_send_exit(other.agent, caf::exit_reason::kill);
  const Error error = told_error();
  EXPECT_EQ(error.code, Errc::peer_down);
  EXPECT_NE(error.message.find("process 1 on host1 ended before training began"), std::string::npos)
      << error.message;
}

// Somebody else cannot speak for a process.
TEST_F(RendezvousHostTest, OnlyWhoJoinedIsReadyOrGivesUp) {
  open(3);
  for (const std::int32_t process : {-1, 0, 1, 3, 1 << 30}) {
    Ready forged = ready(process);
    forged.failed = true;
    forged.error = {Errc::failed, "forged"};
    caf::anon_send(rendezvous_, forged);
  }
  std::vector<std::future<Admission>> asked;
  for (std::int32_t process = 0; process < 3; ++process) asked.push_back(ask(join(process)));
  for (auto& answer : asked) EXPECT_FALSE(answer.get().refused);
  for (const std::int32_t process : {-1, 0, 1, 3, 1 << 30}) {
    Ready forged = ready(process);
    forged.nonce = "guessed";
    forged.failed = true;
    caf::anon_send(rendezvous_, forged);
  }
  for (std::int32_t process = 0; process < 3; ++process)
    caf::anon_send(rendezvous_, ready(process));
  auto crew = told_->crew.get_future();
  ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
}

TEST_F(RendezvousHostTest, AProcessThatBringsTooManyOrTooFewRanksEndsTheStart) {
  open(2);
  auto head = ask(join(0, 2)), other = ask(join(1, 2));
  EXPECT_FALSE(head.get().refused);
  EXPECT_FALSE(other.get().refused);
  Ready wrong = ready(1);
  wrong.peers.resize(1);
  caf::anon_send(rendezvous_, wrong);
  EXPECT_NE(told_error().message.find("process 1 on host1 has 1 ranks instead of 0"),
            std::string::npos);
}

// Its agent would be asked in its place, and its death would be that of the process.
TEST_F(RendezvousHostTest, AProcessThatNamesAnActorOfAnotherProcessDisturbsNobody) {
  for (const char* secret : {"", "the job's own"}) {
    SCOPED_TRACE(secret);
    secret_ = secret;
    told_ = std::make_shared<Told>();
    open(3);
    EXPECT_EQ(refusal_of(with_agent_of_other(join(1))),
              "process 1 on host1 names an actor of another process as its own");
    caf::anon_send(rendezvous_, join(1));  // whose process nobody knows
    expect_start();
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

// The Supervisor would send the orders for those ranks to itself, or to ranks of another process.
TEST_F(RendezvousHostTest, AProcessThatGivesActorsOfAnotherAsItsRanksEndsTheStart) {
  peers_ = 1;
  for (const std::int32_t giver : {0, 1})
    for (const bool names_supervisor : {false, true}) {
      SCOPED_TRACE(std::to_string(giver) + (names_supervisor ? ": Supervisor" : ": peers"));
      if (giver == 0 && names_supervisor) continue;  // it is of that process
      told_ = std::make_shared<Told>();
      open(2);
      auto head = ask(join(0, 2));
      auto other = ask(with_agent_of_other(join(1, 2)), other_system());
      EXPECT_FALSE(head.get().refused);
      EXPECT_FALSE(other.get().refused);
      Ready forged = giver == 0 ? with_peers_of_other(ready(0)) : ready(1);
      if (names_supervisor) forged.peers.at(0) = caf::actor_cast<PeerActor>(supervisor_);
      caf::anon_send(rendezvous_, forged);
      EXPECT_EQ(told_error().message, "process " + std::to_string(giver) + " on host" +
                                          std::to_string(giver) +
                                          " gives actors of another process as its ranks");
      caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    }
}

TEST_F(RendezvousHostTest, AProcessThatReturnsWithActorsOfAnotherAsItsRanksTakesNoPlace) {
  log_.emplace();
  peers_ = 1;
  for (const bool forges : {true, false}) {
    SCOPED_TRACE(forges);
    told_ = std::make_shared<Told>();
    open(3);
    expect_start();
    Join late = join(1);
    late.nonce = "another";
    EXPECT_TRUE(ask(with_agent_of_other(late), other_system()).get().joins);
    Ready ranks = forges ? ready(1) : with_peers_of_other(ready(1));
    ranks.nonce = "another";
    caf::anon_send(rendezvous_, ranks);
    auto returned = told_->returned.get_future();
    ASSERT_EQ(returned.wait_for(kDeadline), std::future_status::ready);
    EXPECT_EQ(returned.get().peers.size(), forges ? 0U : 1U);
    EXPECT_EQ(
        log_->count({"process 1 on host1 could not join: it gives actors of another process"}), 1U)
        << log_->text();
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

TEST_F(RendezvousHostTest, NamesWhoDoesNotCome) {
  open(4, std::chrono::milliseconds(200));
  auto first = ask(join(0, 4));
  auto second = ask(join(2, 4));
  for (auto* answer : {&first, &second}) {
    const Admission admission = answer->get();
    EXPECT_TRUE(admission.refused);
    EXPECT_NE(admission.error.message.find("process 1, 3 did not join"), std::string::npos)
        << admission.error.message;
  }
  EXPECT_EQ(told_error().code, Errc::timeout);
}

// The time for connecting begins where that for joining ends.
TEST_F(RendezvousHostTest, TheDeadlineOfJoiningIsNotThatOfConnecting) {
  for (const bool connecting : {false, true}) {
    SCOPED_TRACE(connecting);
    told_ = std::make_shared<Told>();
    open(2);
    auto first = ask(join(0, 2));
    auto second = ask(join(1, 2));
    EXPECT_FALSE(first.get().refused);
    EXPECT_FALSE(second.get().refused);
    caf::anon_send(rendezvous_, ready(0));
    caf::anon_send(rendezvous_, JoinDeadline{connecting});
    caf::anon_send(rendezvous_, ready(1));
    if (connecting)
      EXPECT_NE(told_error().message.find("process 1 did not connect"), std::string::npos);
    else
      EXPECT_EQ(told_->crew.get_future().wait_for(kDeadline), std::future_status::ready);
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

TEST_F(RendezvousHostTest, NamesWhoCannotConnect) {
  open(2);
  auto first = ask(join(0, 2));
  auto second = ask(join(1, 2));
  EXPECT_FALSE(first.get().refused);
  EXPECT_FALSE(second.get().refused);
  Ready failed = ready(1);
  failed.failed = true;
  failed.error = {Errc::timeout, "process 1 cannot reach process 0"};
  caf::anon_send(rendezvous_, failed);
  EXPECT_EQ(told_error().message, "process 1 cannot reach process 0");
}

// By the clock of the actors, which a suspended process does not stop.
class RendezvousInVirtualTime : public VirtualActors {
 protected:
  RendezvousInVirtualTime() {
    supervisor_ = system_.spawn(listener, told_);
    RendezvousConfig config;
    config.processes = config.initial = 3;
    config.answer_timeout = kDeadline;
    config.secret = "the job's own";
    config.supervisor = supervisor_;
    rendezvous_ = system_.spawn(rendezvous_host, config);
    settle();
  }
  ~RendezvousInVirtualTime() override {
    kill(rendezvous_);
    kill(supervisor_);
    rendezvous_ = RendezvousActor{};
    supervisor_ = SupervisorActor{};
  }
  template <class Result, class Message>
  Result ask(Message message) {
    Result result;
    auto answer = self_->request(rendezvous_, caf::infinite, std::move(message));
    settle();
    answer.receive([&](Result& given) { result = std::move(given); },
                   [](const caf::error& error) { ADD_FAILURE() << caf::to_string(error); });
    return result;
  }

  void join(std::int32_t process, const std::string& nonce, const ProcessAgentActor& agent) {
    Join join;
    join.process = process;
    join.processes = 3;
    join.nonce = nonce;
    join.agent = agent;
    join.challenge = ask<Challenge>(AskChallenge{}).nonce;
    join.proof = proof_of_join("the job's own", join);
    caf::scoped_actor sender{system_};
    sender->send(rendezvous_, join);
    settle();
  }
  // The agents are those of processes 1 and 2.
  void begin_run(const std::vector<ProcessAgentActor>& agents) {
    join(0, "first 0", ProcessAgentActor{});
    for (const std::int32_t process : {1, 2})
      join(process, "first " + std::to_string(process),
           agents.at(static_cast<std::size_t>(process - 1)));
    for (const std::int32_t process : {0, 1, 2}) {
      Ready ready;
      ready.process = process;
      ready.nonce = "first " + std::to_string(process);
      caf::anon_send(rendezvous_, ready);
    }
    settle();
  }
  void pass_tenths(int tenths) {
    for (int i = 0; i < tenths; ++i) {
      scheduler_.advance_time(std::chrono::milliseconds(100));
      settle();
    }
  }

  // Process 0 stands still for two seconds. Those do not count: a whole waited_answer follows,
  // until process 1 has the place of the one that connects.
  void expect_way_given_after_a_standstill() {
    scheduler_.advance_time(std::chrono::seconds(2));
    settle();
    pass_tenths(24);
    EXPECT_EQ(told_->returns, 0);
    pass_tenths(3);
    EXPECT_EQ(told_->returns, 1);
    EXPECT_EQ(told_->connecting, 1) << "the other one has the place";
  }

  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
  SupervisorActor supervisor_;
  RendezvousActor rendezvous_;
};

// What was answered while process 0 stood still may wait behind what tells it the time.
TEST_F(RendezvousInVirtualTime, ASilenceDoesNotCountWhileProcessZeroStandsStill) {
  told_->one_at_a_time = true;
  const std::vector<ProcessAgentActor> agents = {system_.spawn(stand_in), system_.spawn(stand_in),
                                                 system_.spawn(silent_agent),
                                                 system_.spawn(stand_in)};
  begin_run(agents);
  join(2, "of the silent one", agents[2]);
  ASSERT_EQ(told_->connecting, 2);
  join(1, "of the one that waits", agents[3]);
  pass_tenths(10);
  expect_way_given_after_a_standstill();
  for (const ProcessAgentActor& agent : agents) kill(agent);
}

// Its agent answers and its main thread hangs: it keeps the others out for twice the timeout, and
// a moment longer where process 0 stood still.
TEST_F(RendezvousInVirtualTime, AProcessThatIsNeverReadyGivesWayToOneThatWaits) {
  told_->one_at_a_time = true;
  const std::vector<ProcessAgentActor> agents = {system_.spawn(stand_in), system_.spawn(stand_in),
                                                 system_.spawn(stand_in), system_.spawn(stand_in)};
  begin_run(agents);
  join(2, "of the one that hangs", agents[2]);
  ASSERT_EQ(told_->connecting, 2);
  pass_tenths(700);
  join(1, "of the one that waits", agents[3]);
  pass_tenths(495);
  expect_way_given_after_a_standstill();
  for (const ProcessAgentActor& agent : agents) kill(agent);
}

TEST_F(RendezvousInVirtualTime, AChallengeCountsForTenSeconds) {
  for (const int seconds : {9, 10, 11}) {
    SCOPED_TRACE(seconds);
    AskJob question;
    question.challenge = ask<Challenge>(AskChallenge{}).nonce;
    question.proof = proof_of_question("the job's own", "", question.challenge);
    pass(seconds);
    const JobOffer offer = ask<JobOffer>(question);
    const bool counts = offer.error.message.find("has not begun") != std::string::npos;
    EXPECT_EQ(counts, seconds < 10) << offer.error.message;
    EXPECT_TRUE(offer.later);
  }
}

}  // namespace rendezvous_host_test
}  // namespace grapevine
