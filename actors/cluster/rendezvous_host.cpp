#include "actors/cluster/rendezvous_host.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "actors/clock_time.hpp"
#include "actors/cluster/dial.hpp"
#include "actors/cluster/join/join_proof.hpp"
#include "actors/run/validate.hpp"
#include "actors/unexpected_messages.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostPage = std::size_t{32} << 10;  // bytes of hosts and addresses
constexpr std::size_t kBytesOfEntry = 16;                 // beside its texts

// Kinds of lines about refusals.
constexpr char kOfUnproven[] = "without the proof of the secret";
constexpr char kOfVersions[] = "another version";
constexpr char kOfJobs[] = "another job, or other options";
constexpr char kOfOldProofs[] = "a proof that was used before";
constexpr char kOfActors[] = "an actor of another process";

}  // namespace

void RendezvousState::init(RendezvousActor::stateful_pointer<RendezvousState> self,
                           RendezvousConfig config) {
  self_ = self;
  config_ = std::move(config);
  self_->monitor(config_.supervisor);
  self_->delayed_send(RendezvousActor{self_}, config_.timeout, JoinDeadline{false});
  self_->delayed_send(RendezvousActor{self_}, kFirstNotice, JoinNotice{});
}

// ---- joining ----

Admission RendezvousState::refusal(const Error& error) {
  Admission admission;
  admission.refused = true;
  admission.error = error;
  return admission;
}

// A process without the proof may say of itself whatever it likes: it hides no line about others.
const char* RendezvousState::kind_of(const Join& join) const {
  if (!config_.secret.empty() && !proves(join)) return kOfUnproven;
  return join.version == config_.version ? kOfJobs : kOfVersions;
}

void RendezvousState::refuse(Answer& answer, const Error& error, const char* kind) {
  ignore("refused: " + error.message, kind);
  answer.deliver(refusal(error));
}

// That process, and with it all others.
void RendezvousState::refuse_start(Answer& answer, const Error& error) {
  answer.deliver(refusal(error));
  refuse_all(error);
}

Challenge RendezvousState::on_ask_challenge() const {
  if (config_.secret.empty()) return {};
  return {challenges_.make(clock_time(self_->clock()))};
}

Expected<void> RendezvousState::use_challenge(const std::string& process,
                                              const std::string& challenge) {
  if (config_.secret.empty() || challenges_.use(challenge, clock_time(self_->clock()))) return {};
  return bad_input(fmt::format("{} sent a proof that was used before, or is older than {} s",
                               process, OneTimeNonces::kValid.count()));
}

// A process of this job: its error ends the start.
void RendezvousState::refuse_member(Answer& answer, const Error& error, const char* kind) {
  return begun_ ? refuse(answer, error, kind) : refuse_start(answer, error);
}

caf::result<Admission> RendezvousState::on_join(Join& join) {
  const caf::strong_actor_ptr sender = self_->current_sender();  // the promise takes it
  const bool is_here = sender != nullptr && sender->node() == self_->node();
  Answer answer = self_->make_response_promise<Admission>();
  if (const auto belongs = check_membership(join); !belongs) {
    refuse(answer, belongs.error(), kind_of(join));
    return answer;
  }
  if (const auto used = use_challenge(name_of(join), join.challenge); !used) {
    ignore("refused: " + used.error().message, kOfOldProofs);
    Admission again = refusal(used.error());
    again.stale = true;
    answer.deliver(std::move(again));
    return answer;
  }
  if (const auto own = check_agent(join, sender); !own) {
    refuse(answer, own.error(), kOfActors);
    return answer;
  }
  if (join.process == 0 && !is_here) {
    refuse_member(answer,
                  bad_input("process 0 was started twice, here and on " + join.host +
                            ": give each process a rank of its own"),
                  kind_of(join));
    return answer;
  }
  const bool early = is_early(join);
  Participant participant{std::move(join), answer, clock_time(self_->clock())};
  if (early)
    on_early_join(std::move(participant));
  else
    on_member_join(std::move(participant));
  return answer;
}

void RendezvousState::on_early_join(Participant early) {
  if (const auto same = check_identity(early.join, {}); !same)
    return refuse(early.answer, same.error(), kind_of(early.join));
  if (early.join.agent) self_->monitor(early.join.agent);
  early_.push_back(std::move(early));
}

void RendezvousState::on_member_join(Participant participant) {
  if (const auto checked = check_member(participant.join); !checked)
    return refuse_member(participant.answer, checked.error(), kind_of(participant.join));
  if (begun_) return on_late_join(std::move(participant));
  if (participants_.count(participant.join.process) > 0) return on_claim(std::move(participant));
  if (participant.join.agent) self_->monitor(participant.join.agent);
  seat(std::move(participant));
}

void RendezvousState::seat(Participant participant) {
  const std::int32_t process = participant.join.process;
  participants_[process] = std::move(participant);
  spdlog::debug("process {} has joined from {}: {} of {}", process,
                participants_.at(process).join.host, participants_.size(), config_.initial);
  admit_if_complete();
}

// Not while a participant may be silent: another one takes its place then.
void RendezvousState::admit_if_complete() {
  const bool complete = static_cast<std::int32_t>(participants_.size()) == config_.initial;
  if (complete && claims_.empty() && !admitted_ && !refused_) admit_all();
}

std::string RendezvousState::name_of(const Join& join) {
  return fmt::format("process {} on {}", join.process, join.host);
}

int RendezvousState::whole_seconds(Duration duration) {
  return static_cast<int>(to_seconds(duration));
}

bool RendezvousState::proves(const Join& join) const {
  return equal_secrets(join.proof, proof_of_join(config_.secret, join));
}

Expected<void> RendezvousState::check_membership(const Join& join) const {
  if (auto sane = check(join); !sane) return sane;
  const std::string who = name_of(join);
  if (!config_.secret.empty()) {
    if (proves(join)) return {};
    return bad_input(who + " does not know the secret of the job at " + config_.where +
                     ": start all processes with one launcher, or one GRAPEVINE_JOB_TOKEN");
  }
  const Error other_job = bad_input(who + " belongs to another job than process 0 at " +
                                    config_.where + ": give each job a MASTER_PORT of its own");
  if (!join.proof.empty()) return other_job;
  if (!join.job.empty() && !config_.job.empty()) {
    if (join.job == config_.job) return {};
    return other_job;
  }
  if (join.processes != config_.processes || join.process < 0 ||
      join.process >= config_.processes || join.version != config_.version)
    if (auto why = check_member(join); !why) return why.error();
  const bool other_user = join.user >= 0 && config_.user >= 0 && join.user != config_.user;
  if (other_user && !check_identity(join, {})) return other_job;
  return {};
}

// BaspGuard refuses messages in the name of another process: the node of a sender is that of its
// process. One without a sender cannot get an answer.
Expected<void> RendezvousState::check_agent(const Join& join, const caf::strong_actor_ptr& sender) {
  if (!join.agent || (sender && join.agent.node() == sender->node())) return {};
  return bad_input(name_of(join) + " names an actor of another process as its own");
}

// For a place that is vacant when the run begins: it waits until then.
bool RendezvousState::is_early(const Join& join) const {
  return !begun_ && !refused_ && join.version == config_.version &&
         join.processes == config_.processes && join.process >= config_.initial &&
         join.process < config_.processes;
}

// It takes the state of training from another rank.
bool RendezvousState::is_late(const Join& join) const {
  return begun_ || join.process >= config_.initial;
}

Expected<void> RendezvousState::check_member(const Join& join) const {
  const std::string who = name_of(join);
  if (join.process < 0 || join.process >= config_.processes || join.processes != config_.processes)
    return bad_input(
        fmt::format("{} of {} does not fit a job of {} processes: start all with the same number "
                    "of processes",
                    who, join.processes, config_.processes));
  if (!begun_ && join.process >= config_.initial)
    return bad_input(fmt::format("{} is none of the {} that begin the run: later ones --join it",
                                 who, config_.initial));
  if (join.version != config_.version)
    return bad_input(
        fmt::format("{} runs version {}, process 0 version {}: install the same everywhere", who,
                    join.version, config_.version));
  if (begun_) return {};  // on_place() compares its options with the present settings
  if (auto same = check_identity(join, {}); !same) return same;
  if (refused_) return bad_input("the job that " + who + " belongs to was refused already");
  return {};
}

namespace {

constexpr char kWiringPrefix[] = "wiring.";
// The ranks of servers are numbered by the wiring that the processes were started with.
constexpr char kServersKey[] = "wiring.servers";

std::string value_of(const std::map<std::string, std::string>& identity, const std::string& key) {
  const auto it = identity.find(key);
  return it == identity.end() ? std::string(kNotStated) : it->second;
}

}  // namespace

// The process may have read its options from a checkpoint that is newer than this process, with
// the changes of the run until then, and the run may have changed since. It gets the present
// settings with its view, whatever it was started with.
bool RendezvousState::has_changed(const std::string& key, const std::string& value,
                                  const ChangedSettings& settings) const {
  if (settings.now.empty() || key == kServersKey) return false;
  if (settings.now.count(key) > 0) return true;
  if (key.rfind(kWiringPrefix, 0) != 0 || !config_.identity_with) return false;
  const auto has_it = [&](const LiveSettings& of_then) {
    return value_of(config_.identity_with(of_then), key) == value;
  };
  return has_it(settings.now) ||
         std::any_of(settings.earlier.begin(), settings.earlier.end(), has_it);
}

Expected<void> RendezvousState::check_identity(const Join& join,
                                               const ChangedSettings& settings) const {
  std::set<std::string> keys;
  for (const auto* identity : {&config_.identity, &join.identity})
    for (const auto& [key, value] : *identity) keys.insert(key);
  if (is_late(join)) keys.erase(kResumedKey);
  for (const std::string& key : keys)
    if (auto same = check_option(name_of(join), key, value_of(join.identity, key), settings); !same)
      return same;
  return {};
}

Expected<void> RendezvousState::check_option(const std::string& who, const std::string& key,
                                             const std::string& there,
                                             const ChangedSettings& settings) const {
  const std::string here = value_of(config_.identity, key);
  if (there == here || has_changed(key, there, settings)) return {};
  return bad_input(who + " was started with " + key + " = " + there + ", process 0 with " + here +
                   ": start all with the same options and job file");
}

Admission RendezvousState::admission_for(const Admission& all, const Join& join) const {
  Admission admission = all;
  if (!config_.secret.empty())
    admission.proof = proof_of_admission(config_.secret, join.nonce, admission);
  return admission;
}

void RendezvousState::ignore(const std::string& what, const char* kind) {
  if (const auto more = refusals_.admit(kind, self_->clock().now()))
    spdlog::warn("{}{}", what, *more);
}

Admission RendezvousState::admission_to_all() const {
  Admission admission;
  admission.out = config_.out;
  admission.trace_run = config_.trace_run;
  admission.supervisor = config_.supervisor;
  admission.validates = static_cast<bool>(config_.crew.evaluator);
  admission.evaluator = config_.crew.evaluator;
  admission.nonce = run_nonce_;
  return admission;
}

// A page ends at kMostPage bytes.
Addresses RendezvousState::on_ask_addresses(const AskAddresses& ask) {
  Addresses page;
  page.first = ask.first;
  const auto asker = std::find_if(
      participants_.begin(), participants_.end(),
      [&](const auto& entry) { return equal_secrets(entry.second.join.nonce, ask.nonce); });
  if (!admitted_ || asker == participants_.end()) {
    ignore("ignored a question for the addresses of the job by a process that was not admitted");
    return page;
  }
  const Join of_vacant_place;
  std::size_t bytes = 0;
  for (std::int32_t process = std::max(0, ask.first); process < config_.processes; ++process) {
    const auto found = participants_.find(process);
    const Join& join = found == participants_.end() ? of_vacant_place : found->second.join;
    bytes += join.host.size() + join.address.size() + kBytesOfEntry;
    if (bytes > kMostPage && !page.hosts.empty()) break;
    page.hosts.push_back(join.host);
    page.addresses.push_back(join.address);
  }
  if (!config_.secret.empty()) page.proof = proof_of_addresses(config_.secret, ask.nonce, page);
  return page;
}

void RendezvousState::admit_all() {
  run_nonce_ = random_hex(kNonceBytes);
  Admission admission = admission_to_all();
  for (std::int32_t process = config_.initial; process < config_.processes; ++process)
    admission.absent.push_back(process);
  for (auto& [process, participant] : participants_)
    participant.answer.deliver(admission_for(admission, participant.join));
  admitted_ = true;
  self_->delayed_send(RendezvousActor{self_}, timeout_of_connecting(), JoinDeadline{true});
}

// Longer than every process's own, which says what it could not reach.
Duration RendezvousState::timeout_of_connecting() const {
  return config_.timeout + 2 * kWaitForDiallers;
}

// Once: the first reason counts.
void RendezvousState::refuse_all(const Error& error) {
  if (std::exchange(refused_, true)) return;
  for (auto& [process, participant] : participants_) {
    if (!admitted_) {
      participant.answer.deliver(refusal(error));
    } else if (participant.join.agent) {
      self_->send(participant.join.agent, RunEnded{true, error, false, ""});
    }
  }
  for (Participant& early : early_) early.answer.deliver(refusal(error));
  early_.clear();
  for (auto& [process, second] : claims_) second.answer.deliver(refusal(error));
  claims_.clear();
  self_->send(config_.supervisor, RankFailed{error});
}

// ---- connecting ----

// The Supervisor sends them the orders for those ranks: an actor of another process, or its own,
// would take them.
Expected<void> RendezvousState::check_ranks(const Ready& ready, const Join& join) const {
  const std::int32_t expected = config_.count_ranks(ready.process);
  const bool all = std::all_of(ready.peers.begin(), ready.peers.end(),
                               [](const PeerActor& peer) { return static_cast<bool>(peer); });
  if (!all || static_cast<std::int32_t>(ready.peers.size()) != expected)
    return bad_input(fmt::format("has {} ranks instead of {}", ready.peers.size(), expected));
  const caf::node_id process = join.agent ? join.agent.node() : self_->node();
  const bool own = std::all_of(ready.peers.begin(), ready.peers.end(),
                               [&](const PeerActor& peer) { return peer.node() == process; });
  if (!own) return bad_input("gives actors of another process as its ranks");
  return {};
}

void RendezvousState::on_ready(Ready& ready) {
  if (begun_) return on_late_ready(ready);
  if (refused_) return;
  const auto participant = participants_.find(ready.process);
  if (participant == participants_.end() ||
      !equal_secrets(participant->second.join.nonce, ready.nonce))
    return ignore("ignored an unauthenticated message for process " +
                  std::to_string(ready.process));
  const std::string who = name_of(participant->second.join);
  if (ready.failed) return refuse_all(ready.error);
  if (!admitted_ || ready_.count(ready.process) > 0)
    return ignore(who + " is ready out of turn; ignored");
  if (const auto all = check_ranks(ready, participant->second.join); !all)
    return refuse_all({Errc::failed, who + " " + all.error().message});
  ready_[ready.process] = std::move(ready);
  if (static_cast<std::int32_t>(ready_.size()) == config_.initial) begin_run();
}

void RendezvousState::begin_run() {
  BeginRun crew = config_.crew;
  // Each process has given those of its ranks in their order.
  std::map<std::int32_t, std::size_t> taken;
  for (const std::int32_t process : config_.process_of)
    crew.peers.push_back(process < config_.initial
                             ? std::move(ready_.at(process).peers.at(taken[process]++))
                             : PeerActor());
  for (auto& [process, participant] : participants_)
    if (participant.join.agent) crew.agents.push_back(participant.join.agent);
  crew.agents.resize(static_cast<std::size_t>(config_.processes) - 1);  // vacant places have none
  self_->send(config_.supervisor, std::move(crew));
  begun_ = true;
  for (auto& [process, second] : std::exchange(claims_, {}))
    early_.push_back(std::move(second));  // the participant trains: it may be lost later
  for (Participant& early : std::exchange(early_, {})) on_member_join(std::move(early));
}

// ---- losses and deadlines ----

// Once the run has begun, the supervisor watches its processes.
void RendezvousState::on_down(const caf::down_msg& down) {
  if (down.source == config_.supervisor.address()) return self_->quit();
  if (begun_) return on_late_down(down.source);
  if (refused_) return;
  early_.erase(std::remove_if(early_.begin(), early_.end(),
                              [&](const Participant& early) {
                                return early.join.agent &&
                                       early.join.agent.address() == down.source;
                              }),
               early_.end());
  for (auto it = claims_.begin(); it != claims_.end();)
    it = it->second.join.agent.address() == down.source ? claims_.erase(it) : std::next(it);
  const auto participant =
      std::find_if(participants_.begin(), participants_.end(), [&](const auto& entry) {
        return entry.second.join.agent && entry.second.join.agent.address() == down.source;
      });
  if (participant == participants_.end()) return admit_if_complete();
  on_participant_end(participant->first);
}

// Before the run has begun. While others are missing, its launcher may start it again.
void RendezvousState::on_participant_end(std::int32_t process) {
  const auto participant = participants_.find(process);
  const std::string who = name_of(participant->second.join);
  const bool replaced = claims_.count(process) > 0;
  if (admitted_ || (overdue_ && !replaced))
    return refuse_all({Errc::peer_down, who + " ended before training began, or cannot be reached "
                                              "any more; its own output says why"});
  spdlog::warn("{} joined and then ended: {}", who,
               replaced ? "another one takes its place" : "waiting for its restart");
  participant->second.answer.deliver(refusal({Errc::peer_down, who + " is gone"}));
  participants_.erase(participant);
  if (auto second = claims_.extract(process); !second.empty()) seat(std::move(second.mapped()));
}

// Names the missing processes to the user. None is missing while a participant is asked whether it
// lives.
void RendezvousState::on_notice() {
  if (refused_ || begun_) return;
  const std::size_t present = admitted_ ? ready_.size() : participants_.size();
  const std::size_t absent = static_cast<std::size_t>(config_.initial) - present;
  if (absent > 0)
    spdlog::warn("waiting for {} of {} processes ({}) {} {}", absent, config_.initial, missing(),
                 admitted_ ? "to connect to the others, process 0 is at" : "to join at",
                 config_.where);
  self_->delayed_send(RendezvousActor{self_}, kNextNotice, JoinNotice{});
}

// Where all have joined, and one of them is asked whether it lives, the end of another one ends the
// start from now on.
void RendezvousState::on_deadline(JoinDeadline deadline) {
  if (refused_ || begun_ || deadline.connecting != admitted_) return;
  const std::size_t present = admitted_ ? ready_.size() : participants_.size();
  overdue_ = present == static_cast<std::size_t>(config_.initial);
  if (overdue_) return;
  refuse_all({Errc::timeout,
              admitted_ ? fmt::format("process {} did not connect within {} s of joining: is it "
                                      "suspended? Its own output may say why",
                                      missing(), whole_seconds(timeout_of_connecting()))
                        : fmt::format("process {} did not join within {} s: is it started, and can "
                                      "it reach process 0?",
                                      missing(), whole_seconds(config_.timeout))});
}

std::string RendezvousState::missing() const {
  std::string list;
  for (std::int32_t process = 0; process < config_.initial; ++process)
    if (admitted_ ? ready_.count(process) == 0 : participants_.count(process) == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(process);
  return list;
}

RendezvousActor::behavior_type rendezvous_host(
    RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config) {
  RendezvousState& state = self->state;
  state.init(self, std::move(config));
  ignore_unexpected_messages(*self);
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  return {
      [&state](AskChallenge) { return state.on_ask_challenge(); },
      [&state](Join& join) { return state.on_join(join); },
      [&state](const AskAddresses& ask) { return state.on_ask_addresses(ask); },
      [&state](const AskJob& ask) { return state.on_ask_job(ask); },
      [&state](Ready& ready) { state.on_ready(ready); },
      [&state](JoinDeadline deadline) { state.on_deadline(deadline); },
      [&state](JoinNotice) { state.on_notice(); },
      [&state](const AskPlaceAgain& again) { state.ask_for_place(again.nonce); },
  };
}

}  // namespace grapevine
