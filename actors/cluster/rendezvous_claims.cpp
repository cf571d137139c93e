// Two processes with one number: the rendezvous asks the first one whether it lives. A process that
// is suspended, or whose machine has failed, keeps its connection until its silence has lasted long
// enough (heartbeats_for()), and its launcher may have started another one by then.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/clock_time.hpp"
#include "actors/cluster/rendezvous_host.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace {

Error started_twice(const Join& first, const Join& second) {
  return bad_input(
      fmt::format("process {} was started twice, on {} and {}: give each process a rank of its own",
                  first.process, first.host, second.host));
}

}  // namespace

// A request fails at once where the process has ended, or its connection.
RendezvousState::Life RendezvousState::life_after(const caf::error& error) {
  return error == caf::sec::request_timeout ? Life::silent : Life::ended;
}

void RendezvousState::on_claim(Participant second) {
  const std::int32_t process = second.join.process;
  const Join& first = participants_.at(process).join;
  if (!first.agent || !second.join.agent)  // process 0 is this one
    return refuse_start(second.answer, started_twice(first, second.join));
  // Of three processes two have come just now.
  if (const auto other = claims_.find(process); other != claims_.end())
    return refuse_start(second.answer, started_twice(other->second.join, second.join));
  self_->monitor(second.join.agent);
  claims_.emplace(process, std::move(second));
  const std::string nonce = first.nonce;
  self_->request(first.agent, config_.answer_timeout, Ping{})
      .then([this, process, nonce](Pong) { on_claim_settled(process, nonce, Life::answers); },
            [this, process, nonce](const caf::error& error) {
              on_claim_settled(process, nonce, life_after(error));
            });
}

// `nonce`: of the participant that was asked.
void RendezvousState::on_claim_settled(std::int32_t process, const std::string& nonce, Life life) {
  const auto first = participants_.find(process);
  const auto claim = claims_.find(process);
  // Either may have ended meanwhile, or the run has begun.
  if (first == participants_.end() || first->second.join.nonce != nonce || claim == claims_.end())
    return;
  if (life == Life::ended) return on_participant_end(process);
  if (life == Life::answers)
    return refuse_all(started_twice(first->second.join, claim->second.join));
  const std::string silence = silence_of(first->second), name = name_of(claim->second.join);
  if (admitted_)  // the others connect to it
    return refuse_all({Errc::peer_down, fmt::format("{}, and {} asks for its place: end the silent "
                                                    "process, and start the job again",
                                                    silence, name)});
  spdlog::warn("{}: {} takes its place", silence, name);
  Participant second = std::move(claim->second);
  claims_.erase(claim);
  self_->demonitor(first->second.join.agent.address());
  first->second.answer.deliver(
      refusal(bad_input(fmt::format("{}: {} has taken its place", silence, name))));
  seat(std::move(second));
}

std::string RendezvousState::silence_of(const Participant& participant) const {
  const Duration since = clock_time(self_->clock()) - participant.since;
  return fmt::format("{} joined {} s ago and has not answered for {} s", name_of(participant.join),
                     whole_seconds(since), whole_seconds(config_.answer_timeout));
}

}  // namespace grapevine
