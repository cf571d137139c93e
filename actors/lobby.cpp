#include "actors/lobby.hpp"

#include <spdlog/spdlog.h>

#include <set>

namespace grapevine {

void LobbyState::init(LobbyActor::stateful_pointer<LobbyState> self, LobbyConfig config) {
  self_ = self;
  config_ = std::move(config);
  self_->monitor(config_.supervisor);
  self_->delayed_send(LobbyActor{self_}, config_.patience, JoinDeadline{false});
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
  const auto checked = check(join);
  const std::int32_t process = join.process;
  if (!checked) {
    answer.deliver(refusal(checked.error()));
    if (!begun_) refuse_all(checked.error());
    return answer;
  }
  guests_.emplace(process, Guest{std::move(join), answer});
  spdlog::debug("process {} has joined from {}: {} of {}", process, guests_.at(process).join.host,
                guests_.size(), config_.processes);
  if (static_cast<std::int32_t>(guests_.size()) == config_.processes) welcome_all();
  return answer;
}

Expected<void> LobbyState::check(const Join& join) const {
  const std::string who = "process " + std::to_string(join.process) + " on " + join.host;
  if (begun_)
    return bad_input(who + " comes too late: the run has begun with all its " +
                     std::to_string(config_.processes) + " processes; is a rank started twice?");
  if (join.process < 0 || join.process >= config_.processes)
    return bad_input(who + " does not fit a job of " + std::to_string(config_.processes) +
                     " processes: start all with the same number of processes");
  if (const auto other = guests_.find(join.process); other != guests_.end())
    return bad_input("process " + std::to_string(join.process) + " was started twice, on " +
                     other->second.join.host + " and " + join.host +
                     ": give each process a rank of its own");
  if (join.version != config_.version)
    return bad_input(who + " runs version " + join.version + ", process 0 version " +
                     config_.version + ": install the same everywhere");
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
      return bad_input(who + " was started with " + key + " = " + there + ", process 0 with " +
                       here + ": start all with the same options and job file");
  }
  if (refused_) return bad_input("the job that " + who + " belongs to was refused already");
  return {};
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
  for (auto& [process, guest] : guests_) guest.answer.deliver(welcome);
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
  if (refused_) return;
  if (ready.failed) return refuse_all(ready.error);
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
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  return {
      [&state](Join& join) { return state.on_join(join); },
      [&state](Ready& ready) { state.on_ready(ready); },
      [&state](JoinDeadline deadline) { state.on_deadline(deadline); },
  };
}

}  // namespace grapevine
