// NodeAgent: receives the pool's messages for one of its nodes.
#pragma once
#include <functional>
#include <string>

#include "actors/cluster/node_protocol.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {

// For an actor that other processes know: their exit messages are ignored. This does not protect
// against an attacker: a sender can name any source, and "kill" cannot be ignored.
template <class Self>
void ignore_foreign_exits(Self* self) {
  self->set_exit_handler([self](caf::exit_msg& message) {
    if (message.source == nullptr || message.source.node() == self->node())
      self->quit(std::move(message.reason));
  });
}

// Why a node no longer belongs to its pool.
enum class PoolGone { closed, dropped, died };

// Called on a thread of the scheduler; none may block.
struct NodeHooks {
  std::function<void(StartRanks)> start;
  std::function<void(SignalRanks)> signal;
  // Once: the first node has ended, has dropped this one, or died or became silent.
  std::function<void(PoolGone how)> pool_gone;
};

struct NodeAgentConfig {
  SealReader from_pool;
  NodeHooks hooks;
};

struct NodeAgentState {
  const char* name = "node_agent";
  NodeAgentConfig config;
  caf::actor_addr pool;  // nothing before JoinedPool
  bool gone = false;
  LogLimit distrusted;
};

// Forwards messages with a seal of the pool, and drops all others.
NodeAgentActor::behavior_type node_agent(NodeAgentActor::stateful_pointer<NodeAgentState> self,
                                         NodeAgentConfig config);

}  // namespace grapevine
