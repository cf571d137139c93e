// Transport over UCX: InfiniBand, shared memory or TCP, whichever UCX finds between two processes.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/remote.hpp"

namespace grapevine {

struct UcxOptions {
  // Network devices as UCX names them, e.g. "eth0", "lo" or "mlx5_0:1"; comma-separated. Empty: all
  // of this host. (UCX_NET_DEVICES)
  std::string net_devices;
  // Transports that UCX may use, e.g. "tcp" or "rc,posix,cma". Empty: all. (UCX_TLS)
  std::string tls;
  // How long the progress thread polls after the last event before it sleeps. Longer saves wake-ups
  // (about 50 us each), shorter leaves the core to other threads.
  Duration spin = std::chrono::microseconds(50);
  // How long destruction waits, in all, for the other processes to receive all messages.
  Duration linger = std::chrono::seconds(10);
  // Idle memory kept for later tensors.
  std::uint64_t keep_receive_bytes = std::uint64_t{1} << 30;
};

// False where libucx was missing when this was built.
bool ucx_built_in();

// Tensors are sent without a copy and received into memory of their own; both on the CPU.
//
// Between processes of one host (equal names in the Placement) shared memory is used where UCX may,
// between hosts the network only. The death of a process is detected within seconds; a stopped
// process or a dead host is lost only by process_down(). Data that was sent to a stopped process of
// this host stays in memory as long as the process lives, because it may still fetch it.
//
// Threads: one per transport, which delivers messages of other processes; a slow Inbox delays all
// deliveries of this process. Messages between local ranks are delivered as in
// net/inproc/inproc.hpp, and waiting messages of a rank are delivered inside its attach().
//
// A lost process may return: it says its own address and proves, by the job's token, that it
// belongs to the job; others that expect it answer.
//
// Counters: a message in flight to a process that is lost counts as sent. A rank that has detached
// cannot attach again.
//
// Destruction announces the end and waits (UcxOptions::linger) until the others have received all.
//
// Errors: unavailable (not built in), io (UCX refuses, e.g. no such device).
Expected<std::unique_ptr<RemoteTransport>> make_ucx_transport(const UcxOptions& options);

}  // namespace grapevine
