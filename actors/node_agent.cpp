#include "actors/node_agent.hpp"

#include <spdlog/spdlog.h>

#include <memory>

namespace grapevine {
namespace {

struct Agent {
  NodeAgentConfig config;
  caf::actor_addr pool;  // nothing before JoinedPool
  bool gone = false;

  bool trusts(const std::string& secret) const {
    if (same_secret(config.secret, secret)) return true;
    spdlog::warn("a message without this pool's secret was ignored");
    return false;
  }
  void lose_pool(PoolGone how) {
    if (!std::exchange(gone, true)) config.hooks.pool_gone(how);
  }
};

}  // namespace

bool same_secret(const std::string& expected, const std::string& given) {
  unsigned difference = expected.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

NodeAgentActor::behavior_type node_agent(NodeAgentActor::pointer self, NodeAgentConfig config) {
  const auto agent = std::make_shared<Agent>();
  agent->config = std::move(config);
  ignore_foreign_exits(self);
  self->set_down_handler([agent](const caf::down_msg& down) {
    if (agent->pool && down.source == agent->pool) agent->lose_pool(PoolGone::died);
  });
  return {
      [agent](StartRanks& start) {
        if (agent->trusts(start.secret)) agent->config.hooks.start(std::move(start));
      },
      [agent](SignalRanks& signal) {
        if (agent->trusts(signal.secret)) agent->config.hooks.signal(std::move(signal));
      },
      [agent](const PoolClosed& closed) {
        if (agent->trusts(closed.secret))
          agent->lose_pool(closed.dropped ? PoolGone::dropped : PoolGone::closed);
      },
      [self, agent](const JoinedPool& joined) {
        agent->pool = joined.pool;
        self->monitor(joined.pool);
      },
  };
}

}  // namespace grapevine
