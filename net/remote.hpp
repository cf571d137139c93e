// The interface of transports between processes, beyond net/transport.hpp.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/cancelled.hpp"
#include "net/placement.hpp"
#include "net/token.hpp"
#include "net/transport.hpp"

namespace grapevine {

// Options of connect(), beyond the placement.
struct ConnectOptions {
  JobToken token{};     // of the job: tcp and shm refuse a connection without it
  Cancelled cancelled;  // ends the wait
  // This process joins others that are connected already, and expect it (expect_process): all but
  // those of `absent`, which are lost.
  bool joins = false;
  std::vector<std::int32_t> absent = {};
  // Where it joins: whether the run has lost that process meanwhile. Such a one is as those of
  // `absent`. REQUIRES: null where it does not join.
  LostMeanwhile lost = {};

  bool is_absent(std::int32_t process) const {
    return std::find(absent.begin(), absent.end(), process) != absent.end();
  }
  bool is_lost(std::int32_t process) const { return lost && lost(process); }
  // Of the wait for that process. REQUIRES: these options outlive it.
  Cancelled cancelled_or_lost(std::int32_t process) const {
    return [this, process] { return (cancelled && cancelled()) || is_lost(process); };
  }
};

// A Transport whose ranks live in several processes. Life: made (it listens), address() goes to
// every other process by the rendezvous, connect() with all addresses, then
// attach() of the local ranks and traffic. Ranks of one process reach each other without the wire.
// Destruction ends all connections; other processes then see their ranks as down.
// Thread-safe from connect() on.
class RemoteTransport : public Transport {
 public:
  // Opaque bytes with which other processes reach this one.
  virtual std::string address() const = 0;
  // Whether messages to the ranks of that process are sent: it is connected and not lost, and a
  // rank of it has not left. From connect() on.
  virtual bool is_up(std::int32_t process) const = 0;
  // Connects to all other processes; `addresses` by process, the own one ignored. Returns once
  // messages can be sent to every rank. A message from a process that is connected earlier waits
  // for the attach() of its receiver. Errors (timeout, io; peer_down: one ended meanwhile):
  // name the process, its host and address; failed: cancelled.
  virtual Expected<void> connect(const std::vector<std::string>& addresses,
                                 const Placement& placement, Duration timeout,
                                 const ConnectOptions& options) = 0;
  // Without a token, for a job whose processes no other program can reach, and without a way to
  // cancel it.
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         Duration timeout) {
    return connect(addresses, placement, timeout, {});
  }
  // The run has learnt that a process is lost (control connection): its ranks go down at the local
  // ones, if they have not yet, behind the messages that have arrived. Those in flight to it are
  // dropped, and the destructor does not wait for it.
  virtual void process_down(std::int32_t process) = 0;
  // A lost process is about to return, under the same index, with `joins`: from now on it may
  // connect, or this process connects to it at `address`, its address(). `host`: as in the
  // placement of a job that begins. Once it is connected, its ranks are up, and their loss is
  // reported again. Of no effect while the process is connected.
  virtual void expect_process(std::int32_t process, const std::string& host,
                              const std::string& address) = 0;
};

}  // namespace grapevine
