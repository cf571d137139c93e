// Two processes with one number: the rendezvous asks the first one whether it lives. A process that
// is suspended, or whose machine has failed, keeps its connection until its silence has lasted for
// --timeout, and its launcher may have started another one by then.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/clock_time.hpp"
#include "actors/cluster/rendezvous_host.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace {

int seconds_of(Duration duration) { return static_cast<int>(to_seconds(duration)); }

Error started_twice(const Join& first, const Join& second) {
  return bad_input(
      fmt::format("process {} was started twice, on {} and {}: give each process a rank of its own",
                  first.process, first.host, second.host));
}

}  // namespace

void RendezvousState::on_claim(Participant second) {
  const std::int32_t process = second.join.process;
  const Join& first = participants_.at(process).join;
  const auto other = claims_.find(process);
  const bool known = !first.agent || !second.join.agent || other != claims_.end();
  if (known) {  // process 0 is this one, and of three processes two have come just now
    const Error twice =
        started_twice(other == claims_.end() ? first : other->second.join, second.join);
    second.answer.deliver(refusal(twice));
    return refuse_all(twice);
  }
  self_->monitor(second.join.agent);
  claims_.emplace(process, std::move(second));
  const std::string nonce = first.nonce;
  self_->request(first.agent, config_.answer_timeout, Ping{})
      .then([this, process, nonce](Pong) { on_claim_settled(process, nonce, true); },
            [this, process, nonce](const caf::error&) { on_claim_settled(process, nonce, false); });
}

// `nonce`: of the participant that was asked.
void RendezvousState::on_claim_settled(std::int32_t process, const std::string& nonce,
                                       bool answers) {
  const auto first = participants_.find(process);
  const auto claim = claims_.find(process);
  // Either may have ended meanwhile, or the run has begun.
  if (first == participants_.end() || first->second.join.nonce != nonce || claim == claims_.end())
    return;
  if (answers) return refuse_all(started_twice(first->second.join, claim->second.join));
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
                     seconds_of(since), seconds_of(config_.answer_timeout));
}

}  // namespace grapevine
