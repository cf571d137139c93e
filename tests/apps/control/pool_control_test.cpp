// The secrets by which a job of nodes is found, and a first node that is none.
#include "apps/control/pool_control.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/node_protocol.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "apps/control/control_client.hpp"
#include "apps/node/node_link.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace pool_control_test {

constexpr char kSecret[] = "a secret of the nodes";
constexpr char kForged[] = "\033]0;a forged line";

// Knows the answer to a greeting, from a real pool, and makes up the rest.
NodePoolActor::behavior_type relaying_pool(NodePoolActor::pointer) {
  return {
      [](const Greet& greet) { return answer_greeting(kSecret, greet, 1); },
      [](const Enlist&) { return Enlisted{}; },
      [](const LeavePool&) { return Left{}; },
      [](const RankOutput&) {},
      [](const RankExited&) {},
      [](const SubmitJob&) { return JobAccepted{}; },
      [](const SignalJob&) {},
      [](const OutputWritten&) {},
      [](const AskControl&) {
        ControlPlace place;
        place.refused = true;
        place.error = bad_input(kForged);
        return place;
      },
      [](GraceOver) {},
      [](JoinsOver) {},
      [](LossOver) {},
      [](ClosePool) {},
  };
}

class PoolControl : public testing::Test {
 protected:
  void SetUp() override {
    configure_for_nodes(config_, std::chrono::seconds(30));
    system_ = std::make_unique<caf::actor_system>(config_);
    pool_ = system_->spawn(relaying_pool);
    const auto port =
        publish_actor(*system_, pool_, {"127.0.0.1", 0, tcp::credentials_of(nullptr, kSecret)});
    ASSERT_TRUE(port.ok()) << port.error().message;
    port_ = *port;
  }
  void TearDown() override {
    caf::anon_send_exit(pool_, caf::exit_reason::user_shutdown);
    pool_ = NodePoolActor{};
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string secret_file(const std::string& name) const {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << kSecret << "\n";
    return path;
  }
  // With these variables and that --secret-file. The error; empty: it takes HOST:PORT for a job's.
  std::string find(const std::map<std::string, std::string>& variables,
                   const std::string& file = "") const {
    const auto lookup = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    const auto client = ControlClient::find(target(), lookup, "", file);
    return client.ok() ? "" : client.error().message;
  }

  const TemporaryDirectory folder_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  NodePoolActor pool_;
  std::uint16_t port_ = 0;
};

TEST_F(PoolControl, NothingOfAnAnswerWithoutASealIsShown) {
  const auto job = find_pool_job("127.0.0.1", port_, kSecret, nullptr);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().code, Errc::protocol);
  EXPECT_EQ(job.error().message.find(kForged), std::string::npos) << job.error().message;
  EXPECT_NE(job.error().message.find("does not prove that it knows the secret"), std::string::npos)
      << job.error().message;
}

// A process of a job has the job's token, and may have the file of all jobs of its user.
TEST_F(PoolControl, TheSecretThatIsNearestToTheCommandCounts) {
  const std::pair<const std::string, std::string> token{"GRAPEVINE_JOB_TOKEN", "0123456789abcdef"},
      file{"GRAPEVINE_SECRET_FILE", secret_file("of_the_user")},
      missing{"GRAPEVINE_SECRET_FILE", "/no/such/file"},
      secret{"GRAPEVINE_CLUSTER_SECRET", "of other nodes"};
  const std::string asks_nodes = "does not prove that it knows the secret";
  EXPECT_EQ(find({token}), "");
  EXPECT_EQ(find({token, file, secret}), "");
  EXPECT_EQ(find({token, missing}), "");
  EXPECT_NE(find({token, missing, secret}, secret_file("given")).find(asks_nodes),
            std::string::npos);
  EXPECT_NE(find({file, secret}).find(asks_nodes), std::string::npos);
  EXPECT_NE(find({missing, secret}).find("/no/such/file"), std::string::npos);
  EXPECT_NE(find({secret}).find("the secret differs"), std::string::npos);
}

}  // namespace pool_control_test
}  // namespace grapevine
