// Transport between the processes of one host: payloads stay in shared memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/codec.hpp"
#include "net/remote.hpp"

namespace grapevine {

struct ShmOptions {
  // A process that shows no sign of life for `heartbeat_timeout` is down; this one shows one every
  // `heartbeat`. 0: only the end of a process counts, which a suspended one has not. REQUIRES: a
  // timeout of several intervals.
  Duration heartbeat{0};
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // How long the receiving thread polls after the last message before it sleeps; negative: 50 us
  // where this process may use several cores, else 0.
  Duration spin{-1};
  // Copies of payloads that wait to be read, for each process.
  std::uint64_t copied_bytes = std::uint64_t{64} << 20;
  // The destructor writes all pending messages into the queues. It drops a process that reads
  // nothing for `flush_timeout`, and all after `flush_limit`.
  Duration flush_timeout = std::chrono::seconds(5);
  Duration flush_limit = std::chrono::seconds(60);
  CodecLimits limits;  // of received messages; the world's size is filled in by connect()
};

// A link has a queue in shared memory for each direction, and a Unix-domain socket. The payload of
// a message is a block of the sender's arena that the receiver maps: its tensors are read where
// they lie, and the memory returns to the sender with the last handle. A tensor that the sender
// allocated with empty_to_send() (messages/tensor_memory.hpp) is sent without a copy, any other one
// with one copy. Without memory for an arena, payloads are copied through the queue.
//
// Memory has no names: it ends with the processes that map it. A received tensor stays valid after
// the death of its sender. The memory of payloads that a dead receiver had is used again.
//
// Beyond the contracts of Transport and RemoteTransport:
//  - All processes are on one host (host_key()), in one network namespace, of one user.
//  - Messages from other processes are delivered on the transport's thread, those between ranks of
//    one process on a sender's thread. An exception from an Inbox is logged and counts as
//    delivered.
//  - send() copies the payload; it waits for nothing.
//  - Messages for a local rank that has not attached yet wait for it, as do its peer_downs. A rank
//    that has left cannot return.
//  - Bytes that no peer writes end the link; the ranks of that process are then down, with that
//    reason.
//  - If connect() fails, this transport is of no further use.
//  - REQUIRES: tensors on the CPU; the destructor runs on no thread of the transport.
//
// Errors (io): this process may not use memory files or Unix-domain sockets.
Expected<std::unique_ptr<RemoteTransport>> make_shm_transport(const ShmOptions& options);

// Equal for two processes that can be on one transport of this kind: same start of the same kernel,
// same network and user namespace, same user. Empty: unknown, where /proc is not mounted.
std::string shm_host_key();

// Whether this process could connect to a transport with that address now. Both processes of a pair
// must get the same answer. A process that is too busy to accept could accept a moment later, so it
// is waited for, some seconds at most. Errors: timeout: it stays busy; io: this process has no
// descriptors or memory left.
Expected<bool> reaches_by_shm(const std::string& address);

}  // namespace grapevine
