// LocalPeerActor: the interface of a Peer inside its own process.
#pragma once
#include "actors/protocol.hpp"

namespace grapevine {

// From a stager of the peer: a message could not be copied. The peer knows whether that ends the
// run, or only its own part in it.
struct StagingFailed {
  Error error;
};

using LocalPeerActor = PeerActor::extend<caf::reacts_to<StagingFailed>>;

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StagingFailed)
