// Transport between ranks of one process: shares memory, copies nothing.
#pragma once
#include <memory>

#include "net/transport.hpp"

namespace grapevine {

// Messages are delivered on a sender's thread, one at a time per receiver, with no lock held: while
// another thread (or an outer frame of this one) is delivering to the receiver, send() leaves the
// message to it and returns. An Inbox may therefore call send() from deliver() and peer_down().
// An Inbox must return quickly: a sender may deliver the messages of others.
//
// Counters: a message to or from a rank that is not attached (never was, or has left) is dropped; a
// message that its receiver's detach() overtakes counts as sent. A delivery already under way on
// another thread may still end after detach() returns; none begins. A rank may attach again: that
// starts a new life, whose end is announced anew.
// REQUIRES: world_size >= 1; ranks handed to the transport are inside the world.
std::unique_ptr<Transport> make_inproc_transport(std::int32_t world_size);

}  // namespace grapevine
