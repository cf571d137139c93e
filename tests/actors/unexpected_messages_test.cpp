// Messages that an actor does not take: the line names the actor, and each kind of actor has its
// own.
#include "actors/unexpected_messages.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <caf/all.hpp>

#include "actors/cluster/node_agent.hpp"
#include "actors/cluster/node_redirector.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace unexpected_messages_test {

class UnexpectedMessages : public testing::Test {
 protected:
  ~UnexpectedMessages() override {
    for (const caf::actor& actor : actors_)
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  template <class Handle>
  void add(const Handle& actor) {
    actors_.push_back(caf::actor_cast<caf::actor>(actor));
  }
  // The line has a limit for the whole process: the same test may have had it before.
  bool has_line(const std::string& name) {
    const std::vector<std::string> line = {"ignored a message that the actor '" + name + "'"};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (log_.count(line) == 0 && std::chrono::steady_clock::now() < deadline) {
      for (const caf::actor& actor : actors_) caf::anon_send(actor, std::string("not taken"));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return log_.count(line) > 0;
  }

  const LogLines log_;  // outlives the actors
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::vector<caf::actor> actors_;
};

TEST_F(UnexpectedMessages, OfTheActorsOfNodesHaveALineForEach) {
  add(system_.spawn(node_agent, NodeAgentConfig{}));
  add(system_.spawn(node_redirector, std::string("10.0.0.1:7")));
  EXPECT_TRUE(has_line("node_agent")) << log_.text();
  EXPECT_TRUE(has_line("node_redirector")) << log_.text();
}

}  // namespace unexpected_messages_test
}  // namespace grapevine
