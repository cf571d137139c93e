#include "actors/cluster/lobby.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "actors/cluster/join_proof.hpp"
#include "actors/run/validate.hpp"

namespace grapevine {
namespace {

// Who starts a job by hand needs a moment; who forgot a process is told in time.
constexpr Duration kFirstNotice = std::chrono::seconds(3);
constexpr Duration kNextNotice = std::chrono::seconds(30);

}  // namespace

void LobbyState::init(LobbyActor::stateful_pointer<LobbyState> self, LobbyConfig config) {
  self_ = self;
  config_ = std::move(config);
  self_->monitor(config_.supervisor);
  self_->delayed_send(LobbyActor{self_}, config_.patience, JoinDeadline{false});
  self_->delayed_send(LobbyActor{self_}, kFirstNotice, JoinNotice{});
}

// ---- joining ----

Welcome LobbyState::refusal(const Error& error) {
  Welcome welcome;
  welcome.refused = true;
  welcome.error = error;
  return welcome;
}

caf::result<Welcome> LobbyState::on_join(Join& join) {
  Answer answer = self_->make_response_promise<Welcome>();
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
  if (join.deputy) self_->monitor(join.deputy);
  guests_.emplace(process, Guest{std::move(join), answer});
  spdlog::debug("process {} has joined from {}: {} of {}", process, guests_.at(process).join.host,
                guests_.size(), config_.processes);
  if (static_cast<std::int32_t>(guests_.size()) == config_.processes) welcome_all();
  return answer;
}

std::string LobbyState::name_of(const Join& join) {
  return "process " + std::to_string(join.process) + " on " + join.host;
}

bool LobbyState::proves(const Join& join) const {
  return equal_secrets(join.proof, proof_of_join(config_.secret, join));
}

Expected<void> LobbyState::check_membership(const Join& join) const {
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

Expected<void> LobbyState::check_member(const Join& join) const {
  const std::string who = name_of(join);
  if (begun_)
    return bad_input(who + " comes too late: the run has begun with all its " +
                     std::to_string(config_.processes) + " processes; is a rank started twice?");
  if (join.process < 0 || join.process >= config_.processes || join.processes != config_.processes)
    return bad_input(who + " of " + std::to_string(join.processes) + " does not fit a job of " +
                     std::to_string(config_.processes) +
                     " processes: start all with the same number of processes");
  if (join.version != config_.version)
    return bad_input(who + " runs version " + join.version + ", process 0 version " +
                     config_.version + ": install the same everywhere");
  if (const auto other = guests_.find(join.process); other != guests_.end())
    return bad_input("process " + std::to_string(join.process) + " was started twice, on " +
                     other->second.join.host + " and " + join.host +
                     ": give each process a rank of its own");
  if (join.process == 0 && self_->current_sender() != nullptr &&
      self_->current_sender()->node() != self_->node())
    return bad_input("process 0 was started twice, here and on " + join.host +
                     ": give each process a rank of its own");
  if (auto same = check_identity(join); !same) return same;
  if (refused_) return bad_input("the job that " + who + " belongs to was refused already");
  return {};
}

Expected<void> LobbyState::check_identity(const Join& join) const {
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

Welcome LobbyState::welcome_for(const Welcome& all, const Join& join) const {
  Welcome welcome = all;
  if (!config_.secret.empty())
    welcome.proof = proof_of_welcome(config_.secret, join.nonce, welcome);
  return welcome;
}

void LobbyState::ignore(const std::string& what) {
  if (const auto more = refusals_.admit()) spdlog::warn("{}{}", what, *more);
}

void LobbyState::welcome_all() {
  Welcome welcome;
  for (const auto& [process, guest] : guests_) {
    welcome.hosts.push_back(guest.join.host);
    welcome.addresses.push_back(guest.join.address);
  }
  welcome.out = config_.out;
  welcome.supervisor = config_.supervisor;
  welcome.validates = static_cast<bool>(config_.evaluator);
  welcome.evaluator = config_.evaluator;
  welcome.nonce = random_hex(kNonceBytes);
  for (auto& [process, guest] : guests_) guest.answer.deliver(welcome_for(welcome, guest.join));
  welcomed_ = true;
  self_->delayed_send(LobbyActor{self_}, config_.patience, JoinDeadline{true});
}

// Once: the first reason counts.
void LobbyState::refuse_all(const Error& error) {
  if (std::exchange(refused_, true)) return;
  for (auto& [process, guest] : guests_) {
    if (!welcomed_) {
      guest.answer.deliver(refusal(error));
    } else if (guest.join.deputy) {
      self_->send(guest.join.deputy, RunEnded{true, error, false, ""});
    }
  }
  self_->send(config_.supervisor, RankFailed{error});
}

// ---- connecting ----

void LobbyState::on_ready(Ready& ready) {
  if (refused_ || begun_) return;
  const auto guest = guests_.find(ready.process);
  if (guest == guests_.end() || !equal_secrets(guest->second.join.nonce, ready.nonce))
    return ignore("ignored an unauthenticated message for process " +
                  std::to_string(ready.process));
  const std::string who = name_of(guest->second.join);
  if (ready.failed) return refuse_all(ready.error);
  if (!welcomed_ || ready_.count(ready.process) > 0)
    return ignore(who + " is ready out of turn; ignored");
  const std::int32_t expected = config_.peers.at(static_cast<std::size_t>(ready.process));
  const bool all = std::all_of(ready.peers.begin(), ready.peers.end(),
                               [](const PeerActor& peer) { return static_cast<bool>(peer); });
  if (!all || static_cast<std::int32_t>(ready.peers.size()) != expected)
    return refuse_all({Errc::failed, who + " has " + std::to_string(ready.peers.size()) +
                                         " ranks instead of " + std::to_string(expected)});
  ready_[ready.process] = std::move(ready);
  if (static_cast<std::int32_t>(ready_.size()) == config_.processes) begin_run();
}

void LobbyState::begin_run() {
  BeginRun crew;
  for (auto& [process, ready] : ready_)
    for (PeerActor& peer : ready.peers) crew.peers.push_back(std::move(peer));
  for (auto& [process, guest] : guests_)
    if (guest.join.deputy) crew.deputies.push_back(guest.join.deputy);
  crew.evaluator = config_.evaluator;
  crew.writer = config_.writer;
  crew.tracer = config_.tracer;
  self_->send(config_.supervisor, std::move(crew));
  begun_ = true;
}

// ---- not in time ----

// The supervisor watches the processes of a run that has begun.
void LobbyState::on_down(const caf::down_msg& down) {
  if (down.source == config_.supervisor.address()) return self_->quit();
  if (begun_ || refused_) return;
  const auto guest = std::find_if(guests_.begin(), guests_.end(), [&](const auto& entry) {
    return entry.second.join.deputy && entry.second.join.deputy.address() == down.source;
  });
  if (guest == guests_.end()) return;
  const std::string who = name_of(guest->second.join);
  if (welcomed_)
    return refuse_all({Errc::peer_down, who + " ended before training began, or cannot be reached "
                                              "any more; its own output says why"});
  spdlog::warn("{} has joined and is gone: waiting for it to come again", who);
  guest->second.answer.deliver(refusal({Errc::peer_down, who + " is gone"}));
  guests_.erase(guest);
}

// People see why nothing happens.
void LobbyState::on_notice() {
  if (refused_ || begun_) return;
  const std::size_t there = welcomed_ ? ready_.size() : guests_.size();
  spdlog::warn("waiting for {} of {} processes ({}) {} {}",
               static_cast<std::size_t>(config_.processes) - there, config_.processes, missing(),
               welcomed_ ? "to connect to the others, process 0 is at" : "to join at",
               config_.where);
  self_->delayed_send(LobbyActor{self_}, kNextNotice, JoinNotice{});
}

void LobbyState::on_deadline(JoinDeadline deadline) {
  if (refused_ || begun_ || deadline.connecting != welcomed_) return;
  const bool late = welcomed_ ? static_cast<std::int32_t>(ready_.size()) < config_.processes
                              : static_cast<std::int32_t>(guests_.size()) < config_.processes;
  if (!late) return;
  const auto seconds = std::to_string(static_cast<int>(to_seconds(config_.patience)));
  refuse_all({Errc::timeout, "process " + missing() +
                                 (welcomed_ ? " did not connect" : " did not join") + " within " +
                                 seconds + " s: is it started, and can it reach process 0?"});
}

std::string LobbyState::missing() const {
  std::string list;
  for (std::int32_t process = 0; process < config_.processes; ++process)
    if (welcomed_ ? ready_.count(process) == 0 : guests_.count(process) == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(process);
  return list;
}

LobbyActor::behavior_type lobby(LobbyActor::stateful_pointer<LobbyState> self, LobbyConfig config) {
  LobbyState& state = self->state;
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
