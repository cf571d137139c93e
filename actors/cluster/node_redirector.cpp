#include "actors/cluster/node_redirector.hpp"

#include "actors/cluster/node_agent.hpp"
#include "actors/unexpected_messages.hpp"

namespace grapevine {

NodePoolActor::behavior_type node_redirector(
    NodePoolActor::stateful_pointer<NodeRedirectorState> self, const std::string& first) {
  ignore_foreign_exits(self);
  ignore_unexpected_messages(*self);
  const Error error =
      bad_input("that node belongs to the nodes of " + first + ": give that address");
  return {
      [error](const Greet&) {
        Greeting greeting;
        greeting.refused = true;
        greeting.error = error;
        return greeting;
      },
      [error](const Enlist&) {
        Enlisted answer;
        answer.refused = true;
        answer.error = error;
        return answer;
      },
      [](const LeavePool&) { return Left{}; },
      [](const RankOutput&) {},
      [](const RankExited&) {},
      [error](const SubmitJob&) {
        JobAccepted answer;
        answer.refused = true;
        answer.error = error;
        return answer;
      },
      [](const SignalJob&) {},
      [](const OutputWritten&) {},
      [error](const AskControl&) {
        ControlPlace answer;
        answer.refused = true;
        answer.error = error;
        return answer;
      },
      [](GraceOver) {},
      [](JoinsOver) {},
      [](LossOver) {},
      [](ClosePool) {},
  };
}

}  // namespace grapevine
