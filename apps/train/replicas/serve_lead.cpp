#include "apps/train/replicas/serve_lead.hpp"

#include <ATen/core/Tensor.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "apps/train/replicas/replica_frames.hpp"

namespace grapevine {
namespace {

// The process at the other end; it lives where the connection does.
void ask_to_stop(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (known && peer.pid == ::getpid()) return;  // tests have both ends in one process
  // 0: it is not visible from here, in another PID namespace.
  if (known && peer.pid > 0 && ::kill(peer.pid, SIGTERM) == 0) return;
  spdlog::warn(
      "this process was asked to stop, but cannot ask the lead of its worker, which is in another "
      "PID namespace: send SIGTERM to that process; this one serves it until then");
}

// Without a copy where the device has written there.
void leave_at(const at::Tensor& place, const FrozenTensor& result) {
  const at::Tensor& made = result.read();
  if (made.data_ptr() != place.data_ptr()) place.copy_(made);
}

// Aborts a group once the other end of a socket has closed: a replica waits in the group, on its
// GPU, for others that will not come. Without a group it does nothing.
class HangUpWatch {
 public:
  HangUpWatch(int socket, std::shared_ptr<GradientGroup> group) {
    if (group)
      thread_ = std::thread([this, socket, group = std::move(group)] {
        if (hangs_up(socket)) group->abort();
      });
  }
  ~HangUpWatch() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
  }
  HangUpWatch(const HangUpWatch&) = delete;
  HangUpWatch& operator=(const HangUpWatch&) = delete;

 private:
  bool hangs_up(int socket) const {
    constexpr int kPollMs = 100;
    while (!end_) {
      pollfd watched{socket, 0, 0};  // an end is always reported
      if (::poll(&watched, 1, kPollMs) > 0) return true;
    }
    return false;
  }

  std::atomic<bool> end_{false};
  std::thread thread_;
};

// The vectors of a request that the lead has put into the shared memory. None where they come by
// the group.
void add_vectors(GradientRequest& request, const LeadLink& link, std::int32_t replica,
                 const ReplicaTask& task) {
  if (task.by_group != 0) return;
  const ReplicaMemory& memory = link.memory;
  request.z = FrozenTensor::freeze(memory.parameters());
  if (task.has_buffers != 0 && memory.shape().buffers > 0)
    request.buffers = FrozenTensor::freeze(memory.buffers());
  if (!link.group) request.recycled = FrozenTensor::freeze(memory.gradient_of(replica));
}

ReplicaResult compute_result(Compute& compute, const LeadLink& link, std::int32_t replica,
                             const ReplicaTask& task) {
  const ReplicaMemory& memory = link.memory;
  const ReplicaShape& shape = memory.shape();
  const std::int64_t returned = link.group ? 0 : shape.parameters;  // else the lead has the mean
  GradientRequest request = request_of(task);
  add_vectors(request, link, replica, task);
  Gradient made = compute.gradient(std::move(request));
  if (made.error.empty() && (made.value.numel() != returned ||
                             (made.buffers.defined() && made.buffers.numel() != shape.buffers)))
    made.error = "the gradient has another size than the model";
  made.step = task.step;
  if (!made.error.empty()) {
    made.buffers = {};
    return result_of(made);
  }
  if (made.value.defined()) leave_at(memory.gradient_of(replica), made.value);
  if (made.buffers.defined()) leave_at(memory.buffers_of(replica), made.buffers);
  return result_of(made);
}

}  // namespace

Expected<std::optional<std::vector<std::uint8_t>>> await_group(LeadLink& link) {
  auto packet = shm::wait_for_packet(link.socket.get(), std::nullopt, nullptr);
  if (!packet) return packet.error();
  auto id = read_group(*packet);
  if (!id) return id;
  link.dismissed = !id->has_value();
  if (link.dismissed || !(*id)->empty()) return id;
  if (auto opened = link.memory.open_gradients(std::move(packet->descriptors.front())); !opened)
    return opened.error();
  return id;
}

Expected<void> serve_lead(Compute& compute, const LeadLink& link, std::int32_t replica,
                          const std::string& lead, const std::function<bool()>& stop_requested) {
  const int socket = link.socket.get();
  const Error lost{Errc::peer_down, lead + ", the lead of this process's worker, is lost"};
  const HangUpWatch watch(socket, link.group);
  bool asked = false;
  const Cancelled poll = [&] {
    if (!asked && stop_requested()) {
      asked = true;
      ask_to_stop(socket);
    }
    return false;
  };
  for (;;) {
    const auto packet = shm::wait_for_packet(socket, std::nullopt, poll);
    if (!packet && packet.error().code == Errc::peer_down) return lost;
    if (!packet) return packet.error();
    const auto task = read_task(*packet);
    if (!task) return Error{task.error().code, "from " + lead + ": " + task.error().message};
    if (!*task) return {};
    if ((*task)->by_group != 0 && !link.group)
      return Error{Errc::protocol,
                   "from " + lead + ": vectors are to come by a group, without one"};
    const ReplicaResult result = compute_result(compute, link, replica, **task);
    if (!shm::send_packet(socket, &result, sizeof result)) return lost;
  }
}

}  // namespace grapevine
