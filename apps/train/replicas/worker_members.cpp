#include "apps/train/replicas/worker_members.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apps/train/replicas/replica_frames.hpp"

namespace grapevine {
namespace {

// Of a connection that may be of another program, once it has begun to send.
constexpr ReplicaClock::duration kGreetingLimit = std::chrono::seconds(5);

// Longest list of connections that have sent nothing.
constexpr std::size_t kMostSilent = 64;

// The first of `silent` that has sent something or has ended, taken out of it. Else waits a while
// for one of them, or at the listener, and returns none.
FileDescriptor wait_for_one(int listener, std::deque<FileDescriptor>& silent) {
  std::vector<pollfd> waiting;
  for (const FileDescriptor& each : silent) waiting.push_back({each.get(), POLLIN, 0});
  waiting.push_back({listener, POLLIN, 0});
  ::poll(waiting.data(), waiting.size(), static_cast<int>(to_seconds(kCancelPoll) * 1000));
  for (std::size_t i = 0; i < silent.size(); ++i) {
    if (waiting[i].revents == 0) continue;
    FileDescriptor ready = std::move(silent[i]);
    silent.erase(silent.begin() + static_cast<std::ptrdiff_t>(i));
    return ready;
  }
  return {};
}

constexpr char kLost[] = "this process of the worker is lost";

// As GradientRequest has them: in the host's memory.
bool is_vector(const FrozenTensor& vector, std::int64_t count) {
  return vector.defined() && vector.device().is_cpu() && vector.dtype() == at::kFloat &&
         vector.numel() == count;
}

// On one thread: torch's copy would start a pool of threads for the one that waits for a member.
void copy_into(const at::Tensor& place, const FrozenTensor& vector) {
  std::memcpy(place.data_ptr<float>(), vector.data<float>(), vector.nbytes());
}

}  // namespace

WorkerMembers::WorkerMembers(ReplicaMemory memory, std::vector<std::string> names,
                             const ReplicaLimits& limits)
    : memory_(std::move(memory)),
      names_(std::move(names)),
      limits_(limits),
      links_(static_cast<std::size_t>(memory_.shape().replicas)) {}

Expected<std::shared_ptr<WorkerMembers>> WorkerMembers::make(const ReplicaShape& shape,
                                                             std::vector<std::string> names,
                                                             const ReplicaLimits& limits) {
  auto memory = ReplicaMemory::make(shape);
  if (!memory) return memory.error();
  return std::shared_ptr<WorkerMembers>(
      new WorkerMembers(*std::move(memory), std::move(names), limits));
}

std::string WorkerMembers::name(std::int32_t replica) const {
  return names_.at(static_cast<std::size_t>(replica));
}

std::int32_t WorkerMembers::missing() const {
  for (std::size_t i = 1; i < links_.size(); ++i)
    if (links_[i].socket.get() < 0) return static_cast<std::int32_t>(i);
  return 0;
}

std::int32_t WorkerMembers::first_ended() const {
  for (std::size_t i = 1; i < links_.size(); ++i)
    if (links_[i].socket.get() >= 0 && shm::has_ended(links_[i].socket.get()))
      return static_cast<std::int32_t>(i);
  return 0;
}

void WorkerMembers::adopt(std::int32_t replica, FileDescriptor socket) {
  link(replica).socket = std::move(socket);
}

Expected<void> WorkerMembers::accept(const ReplicaWorker& own, ReplicaClock::time_point deadline,
                                     const Cancelled& cancelled) {
  const auto listener = shm::listen_at(own.socket_name());
  if (!listener)
    return Error{Errc::io, "no socket for the processes of a worker: " + listener.error().message +
                               ": where another process has its name, set GRAPEVINE_JOB_TOKEN in "
                               "all processes of the job, or another port (MASTER_PORT)"};
  std::deque<FileDescriptor> silent;  // have sent nothing yet
  may_group_ = own.may_group;
  while (missing() > 0) {
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    const auto now = ReplicaClock::now();
    if (now >= deadline)
      return Error{Errc::timeout,
                   fmt::format("{} has not joined its worker within --join-timeout: see its error, "
                               "or give a longer time",
                               name(missing()))};
    if (auto admitted = admit(listener->get(), own, silent); !admitted) return admitted;
    FileDescriptor socket = wait_for_one(listener->get(), silent);
    if (socket.get() < 0) continue;
    const auto limit = std::min<ReplicaClock::time_point>(deadline, now + kGreetingLimit);
    if (auto taken = take(std::move(socket), own, limit, cancelled); !taken) return taken;
  }
  return {};
}

// All that wait at the listener. Those of other users, which may be many, take nobody's place.
Expected<void> WorkerMembers::admit(int listener, const ReplicaWorker& own,
                                    std::deque<FileDescriptor>& silent) {
  for (;;) {
    FileDescriptor socket = shm::accept_from(listener);
    if (socket.get() < 0) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
      return none_left ? Expected<void>(Error{Errc::io, shm::kNoDescriptors}) : Expected<void>();
    }
    if (!shm::is_same_user(socket.get())) {
      refuse(own, "it runs as another user");
      continue;
    }
    silent.push_back(std::move(socket));
    if (silent.size() > kMostSilent) {
      silent.pop_front();
      refuse(own, "it sent nothing, and others wait");
    }
  }
}

void WorkerMembers::refuse(const ReplicaWorker& own, const std::string& why) {
  if (const auto more = refused_.admit())
    spdlog::warn("a connection to worker {} was refused: {}{}", own.worker, why, *more);
}

// Errors are those of a process of this job.
Expected<void> WorkerMembers::take(FileDescriptor socket, const ReplicaWorker& own,
                                   ReplicaClock::time_point deadline, const Cancelled& cancelled) {
  const auto here = [this](std::int32_t replica) { return link(replica).socket.get() >= 0; };
  const auto greeted = greet_member(socket.get(), own, memory_, here, deadline, cancelled);
  if (!greeted) {
    if (greeted.error().code == Errc::failed) return greeted.error();
    refuse(own, greeted.error().message);
    return {};
  }
  if (greeted->refusal == ReplicaRefusal::none) {
    may_group_ = may_group_ && greeted->may_group;
    adopt(greeted->replica, std::move(socket));
    return {};
  }
  const bool known = greeted->replica < own.shape.replicas;
  return bad_input(fmt::format("{} does not fit its worker: {}",
                               known ? name(greeted->replica) : "a process",
                               describe(greeted->refusal)));
}

Gradient WorkerMembers::gradient(std::int32_t replica, GradientRequest request) {
  Link& to = link(replica);
  ++to.requests;
  const Step step = request.step;
  Gradient failure;
  failure.step = step;
  if (to.lost.empty()) {
    auto made = ask(replica, request);
    if (made) return *std::move(made);
    to.lost = name(replica) + ": " + made.error().message;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!abandoned_ && first_lost_.empty()) first_lost_ = to.lost;
    }
    ::shutdown(to.socket.get(), SHUT_RDWR);  // its next wait ends
  }
  failure.error = to.lost;
  return failure;
}

Duration WorkerMembers::limit_of(const Link& to) const {
  if (to.slowest == Duration::zero()) return limits_.first;
  return std::min(limits_.first, std::max(limits_.usual, 4 * to.slowest));
}

Expected<Gradient> WorkerMembers::ask(std::int32_t replica, GradientRequest& request) {
  Link& to = link(replica);
  const auto lost = [this] {
    return Error{Errc::peer_down, abandoned_ ? "its worker has failed" : kLost};
  };
  if (to.socket.get() < 0) return lost();
  if (auto copied = publish(to.requests, request); !copied) return copied.error();
  const ReplicaTask task = task_of(request);
  request = {};  // its handle on z
  if (!shm::send_packet(to.socket.get(), &task, sizeof task)) return lost();
  const Duration longest = limit_of(to);
  const auto begin = ReplicaClock::now();
  const auto limit = std::chrono::duration_cast<ReplicaClock::duration>(longest);
  const auto packet = shm::wait_for_packet(to.socket.get(), begin + limit, nullptr);
  if (!packet && packet.error().code == Errc::timeout)
    return Error{Errc::timeout,
                 fmt::format("no gradient came within {:.0f} s (four times --timeout, or four "
                             "hours for the first one where that has its default)",
                             to_seconds(longest))};
  if (!packet) return packet.error().code == Errc::peer_down ? lost() : packet.error();
  const auto result = read_result(*packet, task.step);
  if (!result) return result.error();
  to.slowest = std::max({to.slowest, Duration(ReplicaClock::now() - begin), Duration(1)});
  Gradient made = gradient_of(*result);
  made.step = task.step;
  if (!made.error.empty()) return made;
  if (!grouped_) made.value = FrozenTensor::freeze(memory_.gradient_of(replica));
  if (result->has_buffers != 0) made.buffers = FrozenTensor::freeze(memory_.buffers_of(replica));
  return made;
}

// The other members wait for the copy here.
Expected<void> WorkerMembers::publish(std::uint64_t request, const GradientRequest& content) {
  if (grouped_ && content.z.defined() && !content.z.device().is_cpu()) return {};  // by the group
  const std::lock_guard<std::mutex> lock(mutex_);
  if (published_ >= request) return {};
  const ReplicaShape& shape = memory_.shape();
  if (!is_vector(content.z, shape.parameters) ||
      (content.buffers.defined() && !is_vector(content.buffers, shape.buffers)))
    return Error{Errc::failed, "the request's vectors are not those of the model"};
  copy_into(memory_.parameters(), content.z);
  if (content.buffers.defined()) copy_into(memory_.buffers(), content.buffers);
  published_ = request;
  return {};
}

Expected<void> WorkerMembers::announce_group(const std::vector<std::uint8_t>& id) {
  // Before any member joins the group, where those that live would wait for the others.
  if (const std::int32_t ended = first_ended(); ended != 0)
    return Error{Errc::peer_down, name(ended) + ": " + kLost};
  grouped_ = !id.empty();
  std::vector<int> descriptors;
  if (!grouped_) {
    if (auto made = memory_.make_gradients(); !made) return made;
    descriptors.push_back(memory_.descriptor_of_gradients());
  }
  const ReplicaGroup group = group_of(id);
  for (const Link& to : links_)  // one that does not take it is lost, which the first step reports
    if (to.socket.get() >= 0) shm::send_packet(to.socket.get(), &group, sizeof group, descriptors);
  return {};
}

void WorkerMembers::abandon() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::int32_t ended = abandoned_ || !first_lost_.empty() ? 0 : first_ended();
    if (ended != 0) first_lost_ = name(ended) + ": " + kLost;
    abandoned_ = true;
  }
  for (const Link& to : links_)
    if (to.socket.get() >= 0) ::shutdown(to.socket.get(), SHUT_RDWR);
}

std::string WorkerMembers::first_lost() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_lost_;
}

void WorkerMembers::dismiss() {
  const ReplicaGoodbye goodbye;
  for (const Link& to : links_)
    if (to.socket.get() >= 0) shm::send_packet(to.socket.get(), &goodbye, sizeof goodbye);
}

Expected<Evaluation> RemoteReplica::evaluate(const FrozenTensor& /*z*/,
                                             const FrozenTensor& /*buffers*/) {
  return Error{Errc::unavailable, "a replica in another process does not evaluate"};
}

}  // namespace grapevine
