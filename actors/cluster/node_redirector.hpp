// The actor that listens in a node that joined a pool.
#pragma once
#include <string>

#include "actors/cluster/node_protocol.hpp"

namespace grapevine {

struct NodeRedirectorState {
  const char* name = "node_redirector";
};

// Redirects every caller to `first`, "host:port".
NodePoolActor::behavior_type node_redirector(
    NodePoolActor::stateful_pointer<NodeRedirectorState> self, const std::string& first);

}  // namespace grapevine
