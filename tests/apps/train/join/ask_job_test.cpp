// Which answers to its question for a job a process accepts.
#include "apps/train/join/ask_job.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"

namespace grapevine {
namespace ask_job_test {

constexpr char kSecret[] = "secret of the job";

using Answer = std::function<JobOffer(const AskJob&)>;

// Process 0 in the hands of the test: its answers, of which it repeats the last, and its questions.
struct OfferingHost {
  std::vector<Answer> answers;
  std::vector<AskJob> asked = {};
  int challenges = 0;
};
RendezvousActor::behavior_type offering_host(RendezvousActor::pointer,
                                             std::shared_ptr<OfferingHost> host) {
  return {
      [host](AskChallenge) { return Challenge{"challenge " + std::to_string(++host->challenges)}; },
      [](const Join&) { return Admission(); },
      [](const AskAddresses&) { return Addresses(); },
      [host](const AskJob& ask) {
        host->asked.push_back(ask);
        return host->answers[std::min(host->asked.size(), host->answers.size()) - 1](ask);
      },
      [](const Ready&) {},
      [](JoinDeadline) {},
      [](JoinNotice) {},
      [](const AskPlaceAgain&) {}};
}

Expected<JobOffer> ask(const std::shared_ptr<OfferingHost>& host, const std::string& secret) {
  caf::actor_system_config config;
  configure_for_cluster(config, std::chrono::seconds(60));
  caf::actor_system system(config);
  const auto actor = system.spawn(offering_host, host);
  const auto port =
      publish_actor(system, actor, {"127.0.0.1", 0, tcp::credentials_of(nullptr, secret)});
  if (!port) return port.error();
  JobQuestion question;
  question.host = "127.0.0.1";
  question.port = *port;
  question.secret = secret;
  question.version = "1";
  question.timeout = std::chrono::seconds(60);  // only a hang reaches it
  auto offer = ask_for_job(question);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  return offer;
}
Expected<JobOffer> ask(const std::vector<Answer>& answers, const std::string& secret) {
  return ask(std::make_shared<OfferingHost>(OfferingHost{answers}), secret);
}

JobOffer offer_with(const std::string& proof) {
  JobOffer offer;
  offer.process = 1;
  offer.processes = 2;
  offer.job = "SLURM 7";
  offer.transport = "tcp";
  offer.text = "lr = 0.1";
  offer.proof = proof;
  return offer;
}
JobOffer proven_offer(const std::string& secret, const std::string& nonce) {
  return offer_with(proof_of_offer(secret, nonce, offer_with("")));
}
JobOffer refusal(const std::string& why, bool later) {
  JobOffer offer;
  offer.refused = true;
  offer.later = later;
  offer.error = bad_input(why);
  return offer;
}

TEST(AskForJob, AProvenOfferIsTaken) {
  const Answer right = [](const AskJob& ask) { return proven_offer(kSecret, ask.nonce); };
  const auto offer = ask({right}, kSecret);
  ASSERT_TRUE(offer.ok()) << offer.error().message;
  EXPECT_EQ(offer->text, "lr = 0.1");
}

// The text of a job names files that its reader opens, and models that are programs.
TEST(AskForJob, AnOfferOfAListenerWithoutTheSecretIsNotTaken) {
  const std::vector<Answer> answers = {
      [](const AskJob&) { return offer_with(""); },
      [](const AskJob&) { return offer_with(std::string(64, '0')); },
      [](const AskJob& ask) { return proven_offer("another", ask.nonce); },
      [](const AskJob&) { return proven_offer(kSecret, "of another question"); }};
  for (const Answer& answer : answers) {
    const auto offer = ask({answer}, kSecret);
    ASSERT_FALSE(offer.ok());
    EXPECT_EQ(offer.error().code, Errc::bad_input);
    EXPECT_NE(offer.error().message.find("does not know the secret of this job"), std::string::npos)
        << offer.error().message;
  }
}

// A listener between the process and process 0 passes the question on, and changes the answer.
TEST(AskForJob, AProvenOfferWithOtherContentIsNotTaken) {
  const std::vector<std::function<void(JobOffer&)>> changes = {
      [](JobOffer& o) { o.text = "lr = 0.2"; }, [](JobOffer& o) { o.transport = "shm"; },
      [](JobOffer& o) { o.job = "SLURM 8"; },   [](JobOffer& o) { o.processes = 3; },
      [](JobOffer& o) { o.process = 0; },       [](JobOffer& o) { o.refused = true; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const Answer changed = [&](const AskJob& ask) {
      JobOffer offer = proven_offer(kSecret, ask.nonce);
      changes[i](offer);
      return offer;
    };
    const auto offer = ask({changed}, kSecret);
    ASSERT_FALSE(offer.ok());
    EXPECT_NE(offer.error().message.find("does not know the secret of this job"), std::string::npos)
        << offer.error().message;
  }
}

// It may be about the version, before any proof is compared.
TEST(AskForJob, ARefusalNeedsNoProof) {
  const auto offer = ask({[](const AskJob&) { return refusal("for a reason", false); }}, kSecret);
  ASSERT_FALSE(offer.ok());
  EXPECT_EQ(offer.error().message, "for a reason");
}

TEST(AskForJob, EachQuestionHasAChallengeOfItsOwn) {
  const Answer too_old = [](const AskJob&) { return refusal("too old", true); };
  const Answer right = [](const AskJob& ask) { return proven_offer(kSecret, ask.nonce); };
  const auto host = std::make_shared<OfferingHost>(OfferingHost{{too_old, too_old, right}});
  ASSERT_TRUE(ask(host, kSecret).ok());
  ASSERT_EQ(host->asked.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const AskJob& one = host->asked[i];
    EXPECT_EQ(one.challenge, "challenge " + std::to_string(i + 1));
    EXPECT_EQ(one.proof, proof_of_question(kSecret, one.nonce, one.challenge));
  }
}

TEST(AskForJob, AProcessWithoutASecretProvesNothing) {
  const auto host =
      std::make_shared<OfferingHost>(OfferingHost{{[](const AskJob&) { return offer_with(""); }}});
  ASSERT_TRUE(ask(host, "").ok());
  EXPECT_EQ(host->challenges, 0);
  EXPECT_EQ(host->asked[0].challenge + host->asked[0].proof, "");
}

}  // namespace ask_job_test
}  // namespace grapevine
