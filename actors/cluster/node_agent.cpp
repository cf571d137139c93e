#include "actors/cluster/node_agent.hpp"

#include <spdlog/spdlog.h>

#include <memory>

#include "actors/unexpected_messages.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {
namespace {

struct Agent {
  NodeAgentConfig config;
  caf::actor_addr pool;  // nothing before JoinedPool
  bool gone = false;

  LogLimit distrusted;

  template <class Message>
  bool trusts(caf::actor_system& system, const Message& message) {
    if (config.from_pool.opens(system, message)) return true;
    if (const auto more = distrusted.admit(system.clock().now()))
      spdlog::warn("a message without the proof of this pool's secret was ignored{}", *more);
    return false;
  }
  void lose_pool(PoolGone how) {
    if (!std::exchange(gone, true)) config.hooks.pool_gone(how);
  }
};

}  // namespace

NodeAgentActor::behavior_type node_agent(NodeAgentActor::pointer self, NodeAgentConfig config) {
  const auto agent = std::make_shared<Agent>();
  agent->config = std::move(config);
  ignore_foreign_exits(self);
  ignore_unexpected_messages(*self);
  self->set_down_handler([agent](const caf::down_msg& down) {
    if (agent->pool && down.source == agent->pool) agent->lose_pool(PoolGone::died);
  });
  return {
      [self, agent](StartRanks& start) {
        if (agent->trusts(self->system(), start)) agent->config.hooks.start(std::move(start));
      },
      [self, agent](SignalRanks& signal) {
        if (agent->trusts(self->system(), signal)) agent->config.hooks.signal(std::move(signal));
      },
      [self, agent](const PoolClosed& closed) {
        if (agent->trusts(self->system(), closed))
          agent->lose_pool(closed.dropped ? PoolGone::dropped : PoolGone::closed);
      },
      [self, agent](const JoinedPool& joined) {
        agent->pool = joined.pool;
        self->monitor(joined.pool);
      },
  };
}

}  // namespace grapevine
