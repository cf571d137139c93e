// NodeAgent: how the pool speaks to one of its nodes.
#pragma once
#include <functional>
#include <string>

#include "actors/node_protocol.hpp"

namespace grapevine {

// Whether two secrets are equal, in a time that depends on the length of `given` alone.
bool same_secret(const std::string& expected, const std::string& given);

// Called on a thread of the scheduler; none may block.
struct NodeHooks {
  std::function<void(StartRanks)> start;
  std::function<void(SignalRanks)> signal;
  // Once: the first node has ended (`closed`), died or fallen silent.
  std::function<void(bool closed)> pool_gone;
};

struct NodeAgentConfig {
  std::string secret;
  NodeHooks hooks;
};

// Passes on what carries the secret, and drops the rest.
NodeAgentActor::behavior_type node_agent(NodeAgentActor::pointer self, NodeAgentConfig config);

}  // namespace grapevine
