// The control plane in virtual time.
#include "actors/run/simulation/control_link.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>

#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace control_link_test {

constexpr Duration kDelay = std::chrono::seconds(3);

caf::behavior doubler(caf::event_based_actor* self) {
  return {[](int number) { return 2 * number; }, [self](caf::ok_atom) { self->quit(); }};
}

class ControlLink : public VirtualActors {
 protected:
  struct Answer {
    std::optional<int> value;
    caf::error error;
    int seconds = 0;  // until it came
  };

  // What a request to `target` is answered with, of which a minute is waited for.
  Answer ask(const caf::actor& target) {
    auto answer = std::make_shared<Answer>();
    auto done = std::make_shared<bool>(false);
    system_.spawn([=](caf::event_based_actor* self) {
      self->request(target, std::chrono::minutes(1), 21)
          .then(
              [=](int value) {
                answer->value = value;
                *done = true;
              },
              [=](const caf::error& error) {
                answer->error = error;
                *done = true;
              });
    });
    for (settle(); !*done && answer->seconds < 70; ++answer->seconds) pass(1);
    EXPECT_TRUE(*done);
    return *answer;
  }

  caf::actor behind_link(const caf::actor& target) {
    return across_control_link(system_, target, kDelay);
  }
};

TEST_F(ControlLink, DelaysARequest) {
  const caf::actor target = system_.spawn(doubler);
  const Answer answer = ask(behind_link(target));
  EXPECT_EQ(answer.value, 42);
  EXPECT_EQ(answer.seconds, 3);
  kill(target);
}

// Long after the end, and while neither the end nor the request has crossed the link.
TEST_F(ControlLink, AnswersARequestToAnEndedTargetAsCafDoes) {
  for (const auto reason :
       {caf::exit_reason::kill, caf::exit_reason::user_shutdown, caf::exit_reason::normal})
    for (const int seconds_after : {0, 10}) {
      const caf::actor target = system_.spawn(doubler);
      const caf::actor link = behind_link(target);
      settle();
      if (reason == caf::exit_reason::normal)
        self_->send(target, caf::ok_atom::value);
      else
        self_->send_exit(target, reason);
      settle();
      pass(seconds_after);
      const Answer direct = ask(target), late = ask(link);
      EXPECT_FALSE(late.value);
      EXPECT_TRUE(direct.error) << "CAF answers";
      EXPECT_EQ(late.error, direct.error) << system_.render(late.error);
      EXPECT_EQ(direct.seconds, 0);
      EXPECT_EQ(late.seconds, 3) << seconds_after << " s after the end";
    }
}

}  // namespace control_link_test
}  // namespace grapevine
