// A program that speaks CAF tries to reach the rendezvous of a running job without the secret, and
// reaches it with the secret: with proofs that are wrong, recorded or of another version, with
// every type of message between processes, and with bytes that are no messages. The job trains and
// ends as asked, and its log has the lines of docs/security.md.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/protocol/build_version.hpp"
#include "apps/node/node_link.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "tests/actors/cluster/lying_measures.hpp"
#include "tests/apps/control/control_run.hpp"
#include "tests/fuzz/control_messages.hpp"

namespace grapevine {
namespace hostile_client_test {

using nlohmann::json;

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it
const std::string& secret() {
  static const std::string text = "0123456789abcdef of the job";
  return text;
}

// The agent that a hostile process brings.
ProcessAgentActor::behavior_type quiet_agent(ProcessAgentActor::pointer) {
  return {[](const RunEnded&) {},      [](const TraceClosed&) {},
          [](const TraceRefused&) {},  [](StopRequested) {},
          [](CheckpointRequested) {},  [](const ResumeFrom&) {},
          [](ProcessLost) {},          [](const ExpectProcess&) {},
          [](Ping) { return Pong{}; }, [](AskClock) { return ClockReading{}; }};
}

// A process of its own, as far as actors can be, with a connection to the rendezvous. It knows the
// secret, so that it gets further than the listener.
class HostileClient {
 public:
  explicit HostileClient(std::uint16_t port) {
    configure_for_nodes(config_, kDeadline);  // the messages of nodes, which the job does not know
    configure_for_cluster(config_, kDeadline);
    config_.add_message_type<LyingMeasures>("grapevine::RankReport");
    system_ = std::make_unique<caf::actor_system>(config_);
    agent_ = system_->spawn(quiet_agent);
    const auto found =
        dial<RendezvousActor>(*system_, {"process 0", "127.0.0.1", port, kDeadline, nullptr,
                                         tcp::credentials_of(nullptr, secret())});
    EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
    if (found) rendezvous_ = *found;
  }
  ~HostileClient() {
    caf::anon_send_exit(agent_, caf::exit_reason::kill);
    agent_ = ProcessAgentActor{};
    rendezvous_ = RendezvousActor{};
  }
  HostileClient(const HostileClient&) = delete;
  HostileClient& operator=(const HostileClient&) = delete;

  template <class Result, class Message>
  Result ask(Message message) {
    auto answer = ask_actor<Result>(*system_, rendezvous_, kDeadline, std::move(message), nullptr);
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().message);
    return answer ? *std::move(answer) : Result();
  }
  // Without a sender, and of an actor of this process.
  template <class Message>
  void send(const Message& message) {
    const auto victim = caf::actor_cast<caf::actor>(rendezvous_);
    caf::anon_send(victim, message);
    caf::scoped_actor self{*system_};
    self->send(victim, message);
  }
  template <std::size_t... I>
  void send_all(std::index_sequence<I...>) {
    (send(std::tuple_element_t<I, fuzzing::ControlMessages>()), ...);
  }
  const ProcessAgentActor& agent() const { return agent_; }
  std::string challenge() { return ask<Challenge>(AskChallenge{}).nonce; }

  // For the place of process 1, with the proof of `key`.
  Join join(const std::string& key, const std::string& version = build_version()) {
    Join join;
    join.process = 1;
    join.processes = 2;
    join.version = version;
    join.host = "hostile";
    join.address = "127.0.0.1:1";
    join.agent = agent_;
    join.nonce = random_hex(kNonceBytes);
    join.challenge = challenge();
    join.proof = proof_of_join(key, join);
    return join;
  }
  // Nothing of the run may be in a refusal.
  Admission refusal_of(const Join& join, const std::string& why) {
    const Admission answer = ask<Admission>(join);
    EXPECT_TRUE(answer.refused);
    EXPECT_NE(answer.error.message.find(why), std::string::npos) << answer.error.message;
    EXPECT_EQ(answer.out + answer.nonce + answer.proof, "");
    EXPECT_FALSE(answer.supervisor || answer.evaluator);
    return answer;
  }

 private:
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  ProcessAgentActor agent_;
  RendezvousActor rendezvous_;
};

// Two processes of a job that would train for hours.
class HostileClients : public testing::Test {
 protected:
  std::int64_t steps() const {
    const json status = job_.status();
    std::int64_t sum = 0;
    for (const json& rank : status["ranks"]) sum += rank["steps"].get<std::int64_t>();
    return sum;
  }
  bool trains_on() const {
    const std::int64_t before = steps();
    const auto more = [before](const json& status) {
      for (const json& rank : status["ranks"])
        if (rank["steps"].get<std::int64_t>() <= before) return false;
      return true;
    };
    return more(job_.status_when(more));
  }
  void expect_line(const std::string& line) {
    EXPECT_TRUE(job_.process(0).wait_for_output(line)) << line << "\n" << job_.describe();
  }
  void expect_end() {
    job_.process(0).signal(SIGTERM);
    const ProcessResult head = job_.process(0).wait(), other = job_.process(1).wait();
    EXPECT_EQ(head.exit_code, 4) << head.describe();
    EXPECT_EQ(other.exit_code, 0) << other.describe();
    const json summary = summary_of(job_.out());
    EXPECT_EQ(summary["lost_ranks"], json::array());
    EXPECT_EQ(head.out.find("unexpected message"), std::string::npos) << "CAF has printed it";
  }
  // What a scanner of ports sends; until the job has ended the connection.
  void scan(const std::string& bytes) const {
    const auto probe = tcp::probe("127.0.0.1", job_.port(), kDeadline);
    ASSERT_TRUE(probe.ok()) << probe.error().message;
    const int socket = probe->socket.get();
    ::fcntl(socket, F_SETFL, 0);  // it blocks from now on
    const timeval patience{60, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char buffer[4096];
    ssize_t got = 1;
    while (got > 0) got = ::recv(socket, buffer, sizeof buffer, 0);
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "the connection is still open";
  }

  ControlledJob job_{"sgp", 2, {}, {"GRAPEVINE_JOB_TOKEN=" + secret()}};
};

// CAF's own messages carry no proof, and end any actor that they reach.
TEST_F(HostileClients, WithoutTheSecretNoMessageReachesAnActor) {
  ASSERT_TRUE(job_.has_begun()) << job_.describe();
  caf::actor_system_config config;
  configure_for_cluster(config, kDeadline);
  caf::actor_system system{config};
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto found = system.middleman().remote_actor("127.0.0.1", job_.port());
    EXPECT_FALSE(found) << "CAF is answered before the proof";
    if (!found) continue;
    caf::anon_send(*found, caf::error(caf::sec::runtime_error));
    caf::anon_send_exit(*found, caf::exit_reason::kill);
  }
  const std::vector<std::shared_ptr<const tcp::Credentials>> wrong = {
      nullptr, tcp::credentials_of(nullptr, secret() + "r"), tcp::credentials_of(nullptr, "x")};
  for (const auto& credentials : wrong) {
    const auto found = dial<RendezvousActor>(
        system, {"process 0", "127.0.0.1", job_.port(), kDeadline, nullptr, credentials});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Errc::protocol) << found.error().message;  // no second attempt
    EXPECT_NE(found.error().message.find("the secret differs"), std::string::npos)
        << found.error().message;
  }
  expect_line("control: dropped a connection from 127.0.0.1");
  expect_line("it does not know the secret");
  EXPECT_FALSE(HostileClient(job_.port()).challenge().empty());
  EXPECT_TRUE(trains_on()) << job_.describe();
  expect_end();
}

TEST_F(HostileClients, NoProofCountsThatIsWrongOrWasUsed) {
  ASSERT_TRUE(job_.has_begun()) << job_.describe();
  HostileClient client(job_.port());
  const std::string unknown = "does not know the secret of the job";
  client.refusal_of(client.join("another secret"), unknown);
  expect_line("refused: process 1 on hostile does not know the secret of the job");
  Join join = client.join(secret());
  join.proof.clear();
  client.refusal_of(join, unknown);
  join = client.join(secret());
  join.address = "10.0.0.1:1";
  client.refusal_of(join, unknown);
  join = client.join(secret());
  join.challenge = client.challenge();
  client.refusal_of(join, unknown);
  client.refusal_of(client.join(secret(), "0.0.1"), "runs version 0.0.1, process 0 version");
  expect_line("refused: process 1 on hostile runs version 0.0.1, process 0 version");
  // As a program has recorded it that has read the traffic of a process.
  const Join recorded = client.join(secret());
  EXPECT_FALSE(client.refusal_of(recorded, "was started with batch-size = nothing").stale);
  EXPECT_TRUE(client.refusal_of(recorded, "sent a proof that was used before").stale);
  expect_line("refused: process 1 on hostile sent a proof that was used before");
  HostileClient other(job_.port());
  join = client.join(secret());
  join.agent = other.agent();
  join.proof = proof_of_join(secret(), join);
  client.refusal_of(join, "names an actor of another process as its own");
  EXPECT_TRUE(other.refusal_of(recorded, "sent a proof that was used before").stale);
  AskJob question{build_version(), "nonce", "", {}, client.challenge()};
  question.proof = proof_of_question(secret(), question.nonce, question.challenge);
  const JobOffer offer = client.ask<JobOffer>(question);
  EXPECT_EQ(offer.proof, proof_of_offer(secret(), "nonce", offer));
  const JobOffer again = client.ask<JobOffer>(question);
  EXPECT_NE(again.error.message.find("was used before"), std::string::npos) << again.error.message;
  EXPECT_EQ(again.text + again.proof, "");
  EXPECT_TRUE(trains_on()) << job_.describe();
  expect_end();
}

TEST_F(HostileClients, NoTypeOfMessageAndNoBytesEndTheJob) {
  ASSERT_TRUE(job_.has_begun()) << job_.describe();
  {
    HostileClient client(job_.port());
    for (int i = 0; i < 1000; ++i) client.send(AskChallenge{});
    for (int i = 0; i < 3; ++i)
      client.send_all(std::make_index_sequence<std::tuple_size_v<fuzzing::ControlMessages>>());
    EXPECT_FALSE(client.challenge().empty()) << "the rendezvous does not answer";
    expect_line("refused: process 0 on ");
    expect_line("ignored a message that the actor 'rendezvous_host' does not take");
    client.send(LyingMeasures{1, 200});
    expect_line("a message of another process was ignored");
  }
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\x00", 7),
        std::string(100, '\xff')})
    scan(bytes);
  expect_line("control: dropped a connection from 127.0.0.1");
  EXPECT_FALSE(HostileClient(job_.port()).challenge().empty());
  EXPECT_TRUE(trains_on()) << job_.describe();
  expect_end();
}

}  // namespace hostile_client_test
}  // namespace grapevine
