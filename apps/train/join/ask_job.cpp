#include "apps/train/join/ask_job.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/join/ask_challenge.hpp"
#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/run/scheduling.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kAnswerTimeout = std::chrono::seconds(20);
constexpr std::chrono::milliseconds kBetweenQuestions{200};
constexpr std::chrono::seconds kSilence{3};  // of a wait, as of others

Expected<JobOffer> ask_once(caf::actor_system& system, const RendezvousActor& head,
                            const JobQuestion& question) {
  auto challenge = ask_challenge(system, head, question.secret, kAnswerTimeout, question.cancelled);
  if (!challenge) return challenge.error();
  AskJob ask;
  ask.challenge = *std::move(challenge);
  ask.version = question.version;
  ask.options = question.options;
  ask.nonce = random_hex(kNonceBytes);
  if (!question.secret.empty())
    ask.proof = proof_of_question(question.secret, ask.nonce, ask.challenge);
  const std::string nonce = ask.nonce;
  auto offer =
      ask_actor<JobOffer>(system, head, kAnswerTimeout, std::move(ask), question.cancelled);
  if (!offer || question.secret.empty()) return offer;
  const bool unproven_refusal = offer->refused && offer->proof.empty();
  if (unproven_refusal ||
      equal_secrets(offer->proof, proof_of_offer(question.secret, nonce, *offer)))
    return offer;
  return bad_input(
      fmt::format("process 0 at {}:{} does not know the secret of this job: does "
                  "another job listen there?",
                  question.host, question.port));
}

// Time may help where process 0 is not there yet; or the address, or the secret, is another one.
Error unreachable(Error why) {
  if (why.code == Errc::protocol) return bad_input(why.message);
  if (why.code == Errc::timeout || why.code == Errc::io)
    why.message += ": does the job run there, and is that the address that its process 0 printed?";
  return why;
}

}  // namespace

Expected<JobOffer> ask_for_job(const JobQuestion& question) {
  const Clock::time_point deadline = Clock::now() + question.timeout;
  caf::actor_system_config config;
  configure_scheduler(config, 1);
  configure_for_cluster(config, question.timeout);
  caf::actor_system system{config};
  auto head = dial<RendezvousActor>(
      system, {"process 0", question.host, question.port, question.timeout, question.cancelled,
               tcp::credentials_of(question.tls, question.secret)});
  if (!head) return unreachable(head.error());
  const Clock::time_point silent_until = Clock::now() + kSilence;
  bool told = false;
  for (;;) {
    auto offer = ask_once(system, *head, question);
    if (!offer) return offer;
    if (!offer->refused) {
      if (offer->process > 0 && offer->process < offer->processes) return offer;
      return Error{Errc::protocol, "process 0 offers no place of its job"};
    }
    if (!offer->later) return offer->error;
    if (Clock::now() >= deadline) return Error{Errc::timeout, offer->error.message};
    if (!told && Clock::now() >= silent_until) {
      told = true;
      spdlog::warn("waiting for a place in the job at {}:{}: {}", question.host, question.port,
                   offer->error.message);
    }
    std::this_thread::sleep_for(kBetweenQuestions);
    if (question.cancelled && question.cancelled()) return Error{Errc::failed, "asked to stop"};
  }
}

}  // namespace grapevine
