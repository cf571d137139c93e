// Transport over UCX: InfiniBand, shared memory or TCP, whichever UCX finds between two processes.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/device_memory.hpp"
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
  // Of the device on which ranks of this process keep their models. Null, or of a kind that UCX was
  // not built with, or may not use (UCX_TLS): all tensors are on the CPU.
  std::shared_ptr<DeviceMemory> device_memory = nullptr;
};

// False where libucx was missing when this was built.
bool ucx_built_in();

// Tensors are sent without a copy and received into memory of their own; both on the CPU, but for
// takes_device_memory(). Each end decides for itself: the sender gives UCX the tensor where it is,
// the receiver chooses the memory by the rank to which the message goes, and UCX copies between the
// kinds of memory.
// - A tensor of a device is sent as a rendezvous, however small it is: the receiver's host would
//   copy the data of an eager message, which it cannot do to a device.
// - It is the only tensor of its message: the buffers of a list are of one kind of memory for UCX,
//   and lists of a device's were not tried.
// - What arrives as a rendezvous is received in UcxOptions::device_memory if it is the only tensor
//   and a vector of a model; all else in the host's memory.
//
// Between processes of one host (equal names in the Placement) shared memory is used where UCX may,
// between hosts the network only. The death of a process is detected within seconds; a stopped
// process or a dead host is lost only by process_down(). Data that was sent to a stopped process of
// this host stays in memory as long as the process lives, because it may still fetch it.
//
// Threads: one per transport, which delivers messages of other processes; a slow Inbox delays all
// deliveries of this process. With device memory no other thread calls UCX, because the driver of a
// device tells threads apart: waking it then costs some 50 us. Messages between local ranks are
// delivered as in net/inproc/inproc.hpp, and waiting messages of a rank are delivered inside its
// attach().
//
// A lost process may return: the others are told its address, and connect to it. Every process is
// known by a random token in its address: the job's token has no use here.
//
// Counters: a message in flight to a process that is lost counts as sent. A rank that has detached
// cannot attach again.
//
// Destruction announces the end and waits (UcxOptions::linger) until the others have received all.
//
// Errors: unavailable (not built in), io (UCX refuses, e.g. no such device).
Expected<std::unique_ptr<RemoteTransport>> make_ucx_transport(const UcxOptions& options);

}  // namespace grapevine
