// The transport contract. Every implementation passes tests/conformance/transport_suite.hpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "messages/codec.hpp"
#include "messages/envelope.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Where a rank's messages arrive. Called on any thread of the transport; must not block and
// must not call back into the transport's attach/detach.
class Inbox {
 public:
  virtual ~Inbox() = default;
  virtual void deliver(Envelope envelope) = 0;
  // Exactly once per lost peer, after the last message of that peer. `reason`: why the link to it
  // broke, one phrase; empty where the peer left, or was reported as lost by process_down().
  virtual void peer_down(Rank peer, const std::string& reason) = 0;
  // A message of `peer` is lost for ever. Only a transport calls it that may lose messages without
  // which a role can continue.
  virtual void lost(Rank /*peer*/) {}
};

struct TransportCounters {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;        // headers and payload, in-process ones too
  std::uint64_t messages_dropped = 0;  // handed over for a rank that is down
};

// Contract:
//  - FIFO per ordered pair of ranks; at most once; a delivered tensor is bit-identical to the
//    sent one.
//  - send() never blocks; a message to a rank that is down is dropped and counted.
//  - a rank that detaches (or dies) causes peer_down at every other attached rank, exactly once.
// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Registers the inbox of a local rank. Errors: rank outside 0..world_size-1 or attached already.
  virtual Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) = 0;
  // Leaves: pending deliveries to this rank are dropped, the others get peer_down.
  virtual void detach(Rank rank) = 0;
  virtual void send(Envelope envelope) = 0;
  // Totals of one sending rank.
  virtual TransportCounters counters(Rank rank) const = 0;
  virtual std::int32_t world_size() const = 0;
  // Whether messages between these ranks carry their tensors as they are: both are in this process.
  // The tensors of all other messages are in the host's memory, but for takes_device_memory().
  virtual bool by_reference(Rank /*from*/, Rank /*to*/) const { return false; }
  // Whether a message between these ranks may have its tensor in the memory of the sender's device,
  // if it is the only one (only_tensor() of net/device_memory.hpp) and the host has waited for the
  // work that writes it. The tensor may arrive in the memory of the receiver's device.
  virtual bool takes_device_memory(Rank /*from*/, Rank /*to*/) const { return false; }
  // Bytes of messages that wait in this process until the links to other processes take them, at
  // the moment. 0 where nothing waits, and where the transport does not count them.
  virtual std::uint64_t queued_bytes() const { return 0; }
  // The bytes for which a message counts in bytes_sent.
  virtual std::uint64_t size_of(const Envelope& envelope) const { return wire_size(envelope); }
};

}  // namespace grapevine
