// NodeAgent: how the pool speaks to one of its nodes.
#pragma once
#include <functional>
#include <string>

#include "actors/cluster/node_protocol.hpp"

namespace grapevine {

// For an actor that other processes know: exit messages of theirs are ignored. No protection from
// who wants to end it: a sender can name any source, and "kill" is never asked about.
template <class Self>
void ignore_foreign_exits(Self* self) {
  self->set_exit_handler([self](caf::exit_msg& message) {
    if (message.source == nullptr || message.source.node() == self->node())
      self->quit(std::move(message.reason));
  });
}

// How a node came to belong to its pool no more.
enum class PoolGone { closed, dropped, died };

// Called on a thread of the scheduler; none may block.
struct NodeHooks {
  std::function<void(StartRanks)> start;
  std::function<void(SignalRanks)> signal;
  // Once: the first node has ended, has dropped this one, or died or fell silent.
  std::function<void(PoolGone how)> pool_gone;
};

struct NodeAgentConfig {
  SealReader from_pool;
  NodeHooks hooks;
};

// Passes on what carries a seal of the pool, and drops the rest.
NodeAgentActor::behavior_type node_agent(NodeAgentActor::pointer self, NodeAgentConfig config);

}  // namespace grapevine
