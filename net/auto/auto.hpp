// A transport that uses another wire for each pair of processes: shared memory on one host, UCX
// where both hosts have a fast device, else TCP.
#pragma once
#include <memory>

#include "net/remote.hpp"

namespace grapevine {

// The wires that this process offers. REQUIRES: tcp.
struct AutoParts {
  std::unique_ptr<RemoteTransport> shm;  // null: this process has none
  std::unique_ptr<RemoteTransport> ucx;  // "
  std::unique_ptr<RemoteTransport> tcp;
};

// Each pair of processes uses one wire, which both choose alike from their addresses (wires.hpp).
// The contract of a pair is that of its wire. A process that returns may come over another wire
// than before. Ranks of one process reach each other in this process.
//
// Messages for one rank may arrive on the threads of several wires; its Inbox is called by one
// thread at a time all the same.
std::unique_ptr<RemoteTransport> make_auto_transport(AutoParts parts);

}  // namespace grapevine
