// The actor that listens in a node that joined a pool.
#pragma once
#include <string>

#include "actors/cluster/node_protocol.hpp"

namespace grapevine {

// Redirects every caller to `first`, "host:port".
NodePoolActor::behavior_type node_redirector(NodePoolActor::pointer self, std::string first);

}  // namespace grapevine
