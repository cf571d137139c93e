// What a process brings to its transport from the rendezvous.
#include "actors/cluster/rendezvous.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "net/addresses.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"

namespace grapevine {
namespace rendezvous_test {

using std::chrono::seconds;

// Connects at once, and keeps what it was told.
class ToldTransport final : public RemoteTransport {
 public:
  std::string address() const override { return "127.0.0.1:1"; }
  using RemoteTransport::connect;
  Expected<void> connect(const std::vector<std::string>&, const Placement&, Duration,
                         const ConnectOptions& options) override {
    told = options;
    return {};
  }
  void process_down(std::int32_t) override {}
  void expect_process(std::int32_t, const std::string&, const std::string&) override {}
  bool is_up(std::int32_t) const override { return true; }
  Expected<void> attach(Rank, std::shared_ptr<Inbox>) override { return {}; }
  void detach(Rank) override {}
  void send(Envelope) override {}
  TransportCounters counters(Rank) const override { return {}; }
  std::int32_t world_size() const override { return 1; }

  ConnectOptions told;
};

RunConfig config_of(std::uint16_t port, const std::string& secret,
                    const std::shared_ptr<ToldTransport>& transport) {
  RunConfig config;
  config.ranks = 1;
  Wiring wiring;
  config.parts = *make_parts(*resolve(wiring), {1, 1}, *LrSchedule::make({}), {}, 1);
  config.cluster.emplace();
  ClusterConfig& cluster = *config.cluster;
  cluster.head_host = cluster.listen_host = "127.0.0.1";
  cluster.head_port = port;
  cluster.secret = secret;
  cluster.transport = transport;
  cluster.timeout = seconds(50);
  return config;
}

// Process 0 of a job of one, with a system of its own.
Expected<Joined> join(const std::string& secret, const std::shared_ptr<ToldTransport>& transport,
                      const std::function<bool()>& cancelled = {}) {
  const ReservedPort port = *reserve_tcp_port();
  RunConfig config = config_of(port.number, secret, transport);
  config.cluster->cancelled = cancelled;
  caf::actor_system_config system_config;
  configure_for_cluster(system_config, seconds(50));
  caf::actor_system system(system_config);
  SupervisorConfig supervision;
  const auto supervisor = system.spawn(grapevine::supervisor, supervision);
  KnownLosses losses([](std::int32_t) {});
  auto joined = join_run(system, config, supervisor, {}, {}, losses);
  if (joined) caf::anon_send_exit(joined->rendezvous, caf::exit_reason::kill);
  caf::anon_send_exit(supervisor, caf::exit_reason::kill);
  return joined;
}

// It is what keeps connections of other jobs away from the model's data.
TEST(Rendezvous, TheTransportGetsATokenOfThisRunAlone) {
  const auto first = std::make_shared<ToldTransport>(), second = std::make_shared<ToldTransport>();
  const auto joined = join("secret of the job", first);
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_TRUE(
      equal_tokens(first->told.token, job_token("secret of the job", joined->admission.nonce)));
  EXPECT_FALSE(equal_tokens(first->told.token, JobToken{}));
  ASSERT_TRUE(join("secret of the job", second).ok());
  EXPECT_FALSE(equal_tokens(first->told.token, second->told.token)) << "the job started again";
}

TEST(Rendezvous, ConnectingCanBeCancelled) {
  const auto transport = std::make_shared<ToldTransport>();
  const auto stop = std::make_shared<bool>(false);
  const auto joined = join("", transport, [stop] { return *stop; });
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  ASSERT_TRUE(transport->told.cancelled);
  EXPECT_FALSE(transport->told.cancelled());
  *stop = true;
  EXPECT_TRUE(transport->told.cancelled());
}

// What process 0 was asked; it refuses the first `stale` challenges as too old, and then the Join.
struct AskedHost {
  int stale = 0;
  int challenges = 0;
  std::vector<Join> joins = {};
};
RendezvousActor::behavior_type refusing_host(RendezvousActor::pointer,
                                             std::shared_ptr<AskedHost> asked) {
  return {[asked](AskChallenge) {
            return Challenge{"challenge " + std::to_string(++asked->challenges)};
          },
          [asked](Join& join) {
            asked->joins.push_back(std::move(join));
            Admission answer;
            answer.refused = true;
            answer.stale = static_cast<int>(asked->joins.size()) <= asked->stale;
            answer.error = bad_input(answer.stale ? "too old" : "not admitted");
            return answer;
          },
          [](const AskAddresses&) { return Addresses(); },
          [](const AskJob&) { return JobOffer(); },
          [](const Ready&) {},
          [](JoinDeadline) {},
          [](JoinNotice) {},
          [](const AskPlaceAgain&) {}};
}
// The error with which process 1 ends.
std::string error_of_joining(const std::shared_ptr<AskedHost>& asked, const std::string& secret) {
  caf::actor_system_config here, there;
  for (auto* config : {&here, &there}) configure_for_cluster(*config, seconds(50));
  caf::actor_system host_system(here), system(there);
  const auto host = host_system.spawn(refusing_host, asked);
  const auto port =
      publish_actor(host_system, host, {"127.0.0.1", 0, tcp::credentials_of(nullptr, secret)});
  EXPECT_TRUE(port.ok());
  if (!port) return "";
  RunConfig config = config_of(*port, secret, std::make_shared<ToldTransport>());
  config.cluster->process = 1;
  config.cluster->processes = 2;
  KnownLosses losses([](std::int32_t) {});
  const auto joined = join_run(system, config, {}, {}, {}, losses);
  caf::anon_send_exit(host, caf::exit_reason::kill);
  EXPECT_FALSE(joined.ok());
  return joined.ok() ? "" : joined.error().message;
}

// It was suspended between the two messages.
TEST(Rendezvous, AProcessWhoseChallengeIsTooOldAsksForAnother) {
  const auto asked = std::make_shared<AskedHost>(AskedHost{2});
  EXPECT_EQ(error_of_joining(asked, "secret of the job"), "not admitted");
  ASSERT_EQ(asked->joins.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const Join& join = asked->joins[i];
    EXPECT_EQ(join.challenge, "challenge " + std::to_string(i + 1));
    EXPECT_EQ(join.proof, proof_of_join("secret of the job", join));
    EXPECT_EQ(join.nonce, asked->joins[0].nonce);
  }
}

TEST(Rendezvous, AProcessDoesNotAskForChallengesForEver) {
  const auto asked = std::make_shared<AskedHost>(AskedHost{1'000'000});
  EXPECT_EQ(error_of_joining(asked, "secret of the job"), "too old");
  EXPECT_LE(asked->joins.size(), 10U);
}

TEST(Rendezvous, AProcessWithoutASecretProvesNothing) {
  const auto asked = std::make_shared<AskedHost>();
  EXPECT_EQ(error_of_joining(asked, ""), "not admitted");
  EXPECT_EQ(asked->challenges, 0);
  ASSERT_EQ(asked->joins.size(), 1U);
  EXPECT_EQ(asked->joins[0].challenge + asked->joins[0].proof, "");
}

// Of each pair the one that dials does so at most as long as the other one waits for it.
TEST(Rendezvous, WhoDialsGivesUpBeforeWhoWaits) {
  for (const std::int32_t processes : {1, 2, 3, 5, 4096}) {
    SCOPED_TRACE(processes);
    EXPECT_EQ(connect_timeout(seconds(50), processes - 1, processes), seconds(50));
    for (std::int32_t process = 1; process < processes; ++process)
      EXPECT_GE(connect_timeout(seconds(50), process - 1, processes),
                connect_timeout(seconds(50), process, processes));
  }
  EXPECT_EQ(connect_timeout(seconds(50), 0, 3), seconds(50) + kWaitForDiallers);
}

}  // namespace rendezvous_test
}  // namespace grapevine
