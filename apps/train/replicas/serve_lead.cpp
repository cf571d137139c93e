#include "apps/train/replicas/serve_lead.hpp"

#include <ATen/core/Tensor.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "apps/train/replicas/replica_frames.hpp"

namespace grapevine {
namespace {

// The process at the other end; it lives where the connection does.
void ask_to_stop(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  // 0: it is not visible from here, in another PID namespace. Tests have both ends in one process.
  if (known && peer.pid > 0 && peer.pid != ::getpid()) ::kill(peer.pid, SIGTERM);
}

// Without a copy where the device has written there.
void leave_at(const at::Tensor& place, const FrozenTensor& result) {
  const at::Tensor& made = result.read();
  if (made.data_ptr() != place.data_ptr()) place.copy_(made);
}

ReplicaResult compute_result(Compute& compute, const ReplicaMemory& memory, std::int32_t replica,
                             const ReplicaTask& task) {
  const ReplicaShape& shape = memory.shape();
  GradientRequest request = request_of(task);
  request.z = FrozenTensor::freeze(memory.parameters());
  if (task.has_buffers != 0 && shape.buffers > 0)
    request.buffers = FrozenTensor::freeze(memory.buffers());
  request.recycled = FrozenTensor::freeze(memory.gradient_of(replica));
  Gradient made = compute.gradient(std::move(request));
  if (made.error.empty() && (made.value.numel() != shape.parameters ||
                             (made.buffers.defined() && made.buffers.numel() != shape.buffers)))
    made.error = "the gradient has another size than the model";
  made.step = task.step;
  if (!made.error.empty()) {
    made.buffers = {};
    return result_of(made);
  }
  leave_at(memory.gradient_of(replica), made.value);
  if (made.buffers.defined()) leave_at(memory.buffers_of(replica), made.buffers);
  return result_of(made);
}

}  // namespace

Expected<void> serve_lead(Compute& compute, const LeadLink& link, std::int32_t replica,
                          const std::string& lead, const std::function<bool()>& stop_requested) {
  const int socket = link.socket.get();
  const Error lost{Errc::peer_down, lead + ", the lead of this process's worker, is lost"};
  bool asked = false;
  const Cancelled poll = [&] {
    if (!asked && stop_requested()) {
      asked = true;
      ask_to_stop(socket);
    }
    return false;
  };
  for (;;) {
    const auto packet = wait_for_packet(socket, std::nullopt, poll);
    if (!packet && packet.error().code == Errc::peer_down) return lost;
    if (!packet) return packet.error();
    const auto task = read_task(*packet);
    if (!task) return Error{task.error().code, "from " + lead + ": " + task.error().message};
    if (!*task) return {};
    const ReplicaResult result = compute_result(compute, link.memory, replica, **task);
    if (!shm::send_packet(socket, &result, sizeof result)) return lost;
  }
}

}  // namespace grapevine
