#include "actors/cluster/rendezvous_host.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/join_proof.hpp"
#include "actors/run/validate.hpp"

namespace grapevine {

void RendezvousState::init(RendezvousActor::stateful_pointer<RendezvousState> self,
                           RendezvousConfig config) {
  self_ = self;
  config_ = std::move(config);
  self_->monitor(config_.supervisor);
  self_->delayed_send(RendezvousActor{self_}, config_.patience, JoinDeadline{false});
  self_->delayed_send(RendezvousActor{self_}, kFirstNotice, JoinNotice{});
}

// ---- joining ----

Admission RendezvousState::refusal(const Error& error) {
  Admission admission;
  admission.refused = true;
  admission.error = error;
  return admission;
}

caf::result<Admission> RendezvousState::on_join(Join& join) {
  Answer answer = self_->make_response_promise<Admission>();
  if (const auto belongs = check_membership(join); !belongs) {
    ignore("refused: " + belongs.error().message);
    answer.deliver(refusal(belongs.error()));
    return answer;
  }
  const std::int32_t process = join.process;
  if (const auto checked = check_member(join); !checked) {
    answer.deliver(refusal(checked.error()));
    if (!begun_) refuse_all(checked.error());
    return answer;
  }
  if (join.agent) self_->monitor(join.agent);
  participants_.emplace(process, Participant{std::move(join), answer});
  spdlog::debug("process {} has joined from {}: {} of {}", process,
                participants_.at(process).join.host, participants_.size(), config_.processes);
  if (static_cast<std::int32_t>(participants_.size()) == config_.processes) admit_all();
  return answer;
}

std::string RendezvousState::name_of(const Join& join) {
  return fmt::format("process {} on {}", join.process, join.host);
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
  if (other_user && !check_identity(join)) return other_job;
  return {};
}

Expected<void> RendezvousState::check_member(const Join& join) const {
  const std::string who = name_of(join);
  if (begun_)
    return bad_input(
        fmt::format("{} joined too late: the run has begun with all its {} processes; is a rank "
                    "started twice?",
                    who, config_.processes));
  if (join.process < 0 || join.process >= config_.processes || join.processes != config_.processes)
    return bad_input(
        fmt::format("{} of {} does not fit a job of {} processes: start all with the same number "
                    "of processes",
                    who, join.processes, config_.processes));
  if (join.version != config_.version)
    return bad_input(
        fmt::format("{} runs version {}, process 0 version {}: install the same everywhere", who,
                    join.version, config_.version));
  if (const auto other = participants_.find(join.process); other != participants_.end())
    return bad_input(
        fmt::format("process {} was started twice, on {} and {}: give each process a rank of its "
                    "own",
                    join.process, other->second.join.host, join.host));
  if (join.process == 0 && self_->current_sender() != nullptr &&
      self_->current_sender()->node() != self_->node())
    return bad_input("process 0 was started twice, here and on " + join.host +
                     ": give each process a rank of its own");
  if (auto same = check_identity(join); !same) return same;
  if (refused_) return bad_input("the job that " + who + " belongs to was refused already");
  return {};
}

Expected<void> RendezvousState::check_identity(const Join& join) const {
  std::set<std::string> keys;
  for (const auto* identity : {&config_.identity, &join.identity})
    for (const auto& [key, value] : *identity) keys.insert(key);
  const auto value_of = [](const auto& identity, const std::string& key) {
    const auto it = identity.find(key);
    return it == identity.end() ? std::string("nothing") : it->second;
  };
  for (const std::string& key : keys) {
    const std::string here = value_of(config_.identity, key), there = value_of(join.identity, key);
    if (there != here)
      return bad_input(name_of(join) + " was started with " + key + " = " + there +
                       ", process 0 with " + here +
                       ": start all with the same options and job file");
  }
  return {};
}

Admission RendezvousState::admission_for(const Admission& all, const Join& join) const {
  Admission admission = all;
  if (!config_.secret.empty())
    admission.proof = proof_of_admission(config_.secret, join.nonce, admission);
  return admission;
}

void RendezvousState::ignore(const std::string& what) {
  if (const auto more = refusals_.admit()) spdlog::warn("{}{}", what, *more);
}

void RendezvousState::admit_all() {
  Admission admission;
  for (const auto& [process, participant] : participants_) {
    admission.hosts.push_back(participant.join.host);
    admission.addresses.push_back(participant.join.address);
  }
  admission.out = config_.out;
  admission.trace_run = config_.trace_run;
  admission.supervisor = config_.supervisor;
  admission.validates = static_cast<bool>(config_.evaluator);
  admission.evaluator = config_.evaluator;
  admission.nonce = random_hex(kNonceBytes);
  for (auto& [process, participant] : participants_)
    participant.answer.deliver(admission_for(admission, participant.join));
  admitted_ = true;
  self_->delayed_send(RendezvousActor{self_}, config_.patience, JoinDeadline{true});
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
  self_->send(config_.supervisor, RankFailed{error});
}

// ---- connecting ----

void RendezvousState::on_ready(Ready& ready) {
  if (refused_ || begun_) return;
  const auto participant = participants_.find(ready.process);
  if (participant == participants_.end() ||
      !equal_secrets(participant->second.join.nonce, ready.nonce))
    return ignore("ignored an unauthenticated message for process " +
                  std::to_string(ready.process));
  const std::string who = name_of(participant->second.join);
  if (ready.failed) return refuse_all(ready.error);
  if (!admitted_ || ready_.count(ready.process) > 0)
    return ignore(who + " is ready out of turn; ignored");
  const std::int32_t expected = config_.peers.at(static_cast<std::size_t>(ready.process));
  const bool all = std::all_of(ready.peers.begin(), ready.peers.end(),
                               [](const PeerActor& peer) { return static_cast<bool>(peer); });
  if (!all || static_cast<std::int32_t>(ready.peers.size()) != expected)
    return refuse_all({Errc::failed, fmt::format("{} has {} ranks instead of {}", who,
                                                 ready.peers.size(), expected)});
  ready_[ready.process] = std::move(ready);
  if (static_cast<std::int32_t>(ready_.size()) == config_.processes) begin_run();
}

void RendezvousState::begin_run() {
  BeginRun crew;
  for (auto& [process, ready] : ready_)
    for (PeerActor& peer : ready.peers) crew.peers.push_back(std::move(peer));
  for (auto& [process, participant] : participants_)
    if (participant.join.agent) crew.agents.push_back(participant.join.agent);
  crew.evaluator = config_.evaluator;
  crew.writer = config_.writer;
  crew.tracer = config_.tracer;
  self_->send(config_.supervisor, std::move(crew));
  begun_ = true;
}

// ---- losses and deadlines ----

// Once the run has begun, the supervisor watches its processes.
void RendezvousState::on_down(const caf::down_msg& down) {
  if (down.source == config_.supervisor.address()) return self_->quit();
  if (begun_ || refused_) return;
  const auto participant =
      std::find_if(participants_.begin(), participants_.end(), [&](const auto& entry) {
        return entry.second.join.agent && entry.second.join.agent.address() == down.source;
      });
  if (participant == participants_.end()) return;
  const std::string who = name_of(participant->second.join);
  if (admitted_)
    return refuse_all({Errc::peer_down, who + " ended before training began, or cannot be reached "
                                              "any more; its own output says why"});
  spdlog::warn("{} joined and then ended: waiting for its restart", who);
  participant->second.answer.deliver(refusal({Errc::peer_down, who + " is gone"}));
  participants_.erase(participant);
}

// Names the missing processes to the user.
void RendezvousState::on_notice() {
  if (refused_ || begun_) return;
  const std::size_t present = admitted_ ? ready_.size() : participants_.size();
  spdlog::warn("waiting for {} of {} processes ({}) {} {}",
               static_cast<std::size_t>(config_.processes) - present, config_.processes, missing(),
               admitted_ ? "to connect to the others, process 0 is at" : "to join at",
               config_.where);
  self_->delayed_send(RendezvousActor{self_}, kNextNotice, JoinNotice{});
}

void RendezvousState::on_deadline(JoinDeadline deadline) {
  if (refused_ || begun_ || deadline.connecting != admitted_) return;
  const bool late = admitted_ ? static_cast<std::int32_t>(ready_.size()) < config_.processes
                              : static_cast<std::int32_t>(participants_.size()) < config_.processes;
  if (!late) return;
  refuse_all({Errc::timeout,
              fmt::format("process {} did not {} within {} s: is it started, and can it reach "
                          "process 0?",
                          missing(), admitted_ ? "connect" : "join",
                          static_cast<int>(to_seconds(config_.patience)))});
}

std::string RendezvousState::missing() const {
  std::string list;
  for (std::int32_t process = 0; process < config_.processes; ++process)
    if (admitted_ ? ready_.count(process) == 0 : participants_.count(process) == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(process);
  return list;
}

RendezvousActor::behavior_type rendezvous_host(
    RendezvousActor::stateful_pointer<RendezvousState> self, RendezvousConfig config) {
  RendezvousState& state = self->state;
  state.init(self, std::move(config));
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  return {
      [&state](Join& join) { return state.on_join(join); },
      [&state](Ready& ready) { state.on_ready(ready); },
      [&state](JoinDeadline deadline) { state.on_deadline(deadline); },
      [&state](JoinNotice) { state.on_notice(); },
  };
}

}  // namespace grapevine
