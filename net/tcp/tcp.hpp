// Transport between processes over TCP, on Asio's event loop.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "messages/codec.hpp"
#include "net/remote.hpp"

namespace grapevine {
namespace tcp {
class TlsContext;  // net/tcp/tls/tls_context.hpp
}

struct TcpOptions {
  // Where to listen: the address of an interface, a host name, "0.0.0.0" or "::" for all of them.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any that is free
  // A peer from which no data arrives for `heartbeat_timeout` is down; it is sent a ping every
  // `heartbeat`. 0: only a broken connection counts, which a suspended process or a
  // severed cable does not cause. REQUIRES: a timeout of several intervals.
  Duration heartbeat{0};
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // The destructor sends all pending data (final flush). It drops a peer that takes no bytes for
  // `flush_timeout`, and on all after `flush_limit`.
  Duration flush_timeout = std::chrono::seconds(5);
  Duration flush_limit = std::chrono::seconds(60);
  // Encrypts all connections, and each side proves itself by a certificate. Null: neither.
  std::shared_ptr<const tcp::TlsContext> tls = nullptr;
  // Idle memory kept for later tensors.
  std::uint64_t keep_receive_bytes = std::uint64_t{1} << 30;
  CodecLimits limits;  // of received messages; the world's size is filled in by connect()
};

// A listening transport. One connection per pair of processes: the one of the higher index dials,
// and tries again, ever more rarely, until connect()'s timeout is over.
//
// The event loop has a thread of its own, which sleeps when idle. A payload is neither copied nor
// cleared in this process: the system sends it from the tensor's memory and receives it into that
// of a new tensor. A thread that sends writes at most 1 MiB itself, where nothing waits before it.
//
// Beyond the contracts of Transport and RemoteTransport:
//  - Messages from other processes are delivered on the transport's event loop, those between
//    ranks of one process on a sender's thread. An Inbox that hangs blocks all deliveries of
//    its process. An exception from an Inbox is logged and counts as delivered.
//  - Messages for a local rank that has not attached yet wait for it, as do its peer_downs.
//  - A rank that has left cannot return: attach() of it is an error.
//  - Bytes that no peer sends (another magic, version, token or placement; lengths beyond the
//    limits; ranks of another process) end that connection with a log line; its ranks are then
//    down, with that reason.
//  - If connect() fails, all connections are closed: this transport is of no further use.
//  - REQUIRES: tensors on the CPU; ranks handed to send() are inside the world, the sender local;
//    the destructor runs on no thread of the transport, thus in no Inbox.
//
// Errors (io): the address cannot be listened on.
Expected<std::unique_ptr<RemoteTransport>> make_tcp_transport(const TcpOptions& options);

}  // namespace grapevine
