// Finding an actor, and asking one that does not answer.
#include "actors/cluster/dial.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include <caf/io/all.hpp>

#include "actors/protocol.hpp"

namespace grapevine {
namespace dial_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

class AskActor : public testing::Test {
 protected:
  Expected<int> ask(const caf::actor& receiver, Duration timeout = kDeadline,
                    const Cancelled& cancelled = nullptr) {
    return ask_actor<int>(system_, receiver, timeout, 1, cancelled);
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
};

// Takes the question, and lets nobody hear of it.
caf::behavior silent(caf::event_based_actor* self, bool ends) {
  return {[=](int) -> caf::result<int> {
    auto never = self->make_response_promise<int>();
    if (ends) self->quit();
    return never;
  }};
}

TEST_F(AskActor, HearsTheAnswerOfOneThatEndsWithIt) {
  const auto last = system_.spawn([](caf::event_based_actor* self) -> caf::behavior {
    return {[=](int question) {
      self->quit();
      return question + 1;
    }};
  });
  const auto answer = ask(last);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, 2);
}

TEST_F(AskActor, HearsOfTheEndOfTheReceiver) {
  const auto ending = system_.spawn(silent, true);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) {  // the second time it is gone already
    const auto answer = ask(ending);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Errc::peer_down) << answer.error().message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline);
}

TEST_F(AskActor, WaitsNoLongerThanItIsTold) {
  caf::scoped_actor mute{system_};
  const auto receiver =
      caf::actor_cast<caf::actor>(caf::actor_cast<caf::strong_actor_ptr>(mute.ptr()));
  const auto late = ask(receiver, std::chrono::milliseconds(50));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::timeout);
  const auto cancelled = ask(receiver, kDeadline, [] { return true; });
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, Errc::failed);
}

// Trying again would not make it what was wanted.
TEST(Dial, AnActorOfAnotherKindIsRefusedAtOnce) {
  caf::actor_system_config here_config, there_config;
  here_config.load<caf::io::middleman>();
  there_config.load<caf::io::middleman>();
  caf::actor_system here{here_config}, there{there_config};
  const auto other = there.spawn(silent, false);
  const auto port = there.middleman().publish(other, 0, "127.0.0.1");
  ASSERT_TRUE(port);
  const auto found =
      dial<ProcessAgentActor>(here, {"it", "127.0.0.1", *port, std::chrono::seconds(5), nullptr});
  caf::anon_send_exit(other, caf::exit_reason::user_shutdown);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::protocol) << found.error().message;
}

}  // namespace dial_test
}  // namespace grapevine
