#include "actors/cluster/node_agent.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "actors/unexpected_messages.hpp"

namespace grapevine {
namespace {

using Agent = NodeAgentActor::stateful_base<NodeAgentState>;

template <class Message>
bool trusts(Agent& self, const Message& message) {
  if (self.state.config.from_pool.opens(self.system(), message)) return true;
  if (const auto more = self.state.distrusted.admit(self.clock().now()))
    spdlog::warn("a message without the proof of this pool's secret was ignored{}", *more);
  return false;
}

void lose_pool(NodeAgentState& state, PoolGone how) {
  if (!std::exchange(state.gone, true)) state.config.hooks.pool_gone(how);
}

}  // namespace

NodeAgentActor::behavior_type node_agent(NodeAgentActor::stateful_pointer<NodeAgentState> self,
                                         NodeAgentConfig config) {
  NodeAgentState& state = self->state;
  state.config = std::move(config);
  ignore_foreign_exits(self);
  ignore_unexpected_messages(*self);
  self->set_down_handler([&state](const caf::down_msg& down) {
    if (state.pool && down.source == state.pool) lose_pool(state, PoolGone::died);
  });
  return {
      [self, &state](StartRanks& start) {
        if (trusts(*self, start)) state.config.hooks.start(std::move(start));
      },
      [self, &state](SignalRanks& signal) {
        if (trusts(*self, signal)) state.config.hooks.signal(std::move(signal));
      },
      [self, &state](const PoolClosed& closed) {
        if (trusts(*self, closed))
          lose_pool(state, closed.dropped ? PoolGone::dropped : PoolGone::closed);
      },
      [self, &state](const JoinedPool& joined) {
        state.pool = joined.pool;
        self->monitor(joined.pool);
      },
  };
}

}  // namespace grapevine
