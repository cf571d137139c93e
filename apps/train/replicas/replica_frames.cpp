#include "apps/train/replicas/replica_frames.hpp"

#include <algorithm>
#include <string>

#include "messages/check.hpp"

namespace grapevine {
namespace {

Error bad_frame(const std::string& what) {
  return {Errc::protocol, "a malformed frame came: " + what};
}

template <class T>
bool read_frame(const shm::Packet& packet, ReplicaFrame kind, T& frame) {
  return packet.descriptors.empty() && shm::read_as(packet, frame) && frame.kind == kind;
}

bool may_begin_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

// At most that many bytes, and whole characters of UTF-8.
std::size_t cut_length(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text.size();
  while (most > 0 && !may_begin_character(text[most])) --most;
  return most;
}

}  // namespace

// A new field of the struct does not compile here before it is sent, or left out for a reason. The
// same holds in the other functions.
ReplicaTask task_of(const GradientRequest& request) {
  const auto& [step, z, buffers, recycled, deal, parts] = request;
  ReplicaTask task;
  task.step = step;
  task.has_buffers = buffers.defined() ? 1 : 0;
  task.by_group = z.defined() && !z.device().is_cpu() ? 1 : 0;
  task.deal = deal;
  return task;
}

GradientRequest request_of(const ReplicaTask& task) {
  const auto& [kind, has_buffers, by_group, zero, step, deal] = task;
  GradientRequest request;
  request.step = step;
  request.deal = deal;
  return request;
}

ReplicaResult result_of(const Gradient& gradient) {
  const auto& [step, value, buffers, loss, top1, top5, samples, length, data_seconds,
               compute_seconds, device_seconds, error] = gradient;
  ReplicaResult result;
  result.step = step;
  result.has_buffers = buffers.defined() ? 1 : 0;
  result.loss = loss;
  result.top1 = top1;
  result.top5 = top5;
  result.samples = samples;
  result.length = length;
  result.data_seconds = data_seconds;
  result.compute_seconds = compute_seconds;
  result.device_seconds = device_seconds;
  const std::size_t bytes = cut_length(error, kReplicaErrorBytes);
  result.error_bytes = static_cast<std::uint32_t>(bytes);
  std::copy_n(error.begin(), bytes, result.error.begin());
  return result;
}

Gradient gradient_of(const ReplicaResult& result) {
  const auto& [kind, has_buffers, step, loss, top1, top5, samples, length, data_seconds,
               compute_seconds, device_seconds, error_bytes, error] = result;
  Gradient gradient;
  gradient.step = step;
  gradient.loss = loss;
  gradient.top1 = top1;
  gradient.top5 = top5;
  gradient.samples = samples;
  gradient.length = length;
  gradient.data_seconds = data_seconds;
  gradient.compute_seconds = compute_seconds;
  gradient.device_seconds = device_seconds;
  gradient.error.assign(error.data(), error_bytes);
  return gradient;
}

ReplicaGroup group_of(const std::vector<std::uint8_t>& id) {
  GRAPEVINE_CHECK(id.size() <= kGroupIdBytes, "the id of a group has ", id.size(), " bytes");
  ReplicaGroup group;
  group.id_bytes = static_cast<std::uint32_t>(id.size());
  std::copy(id.begin(), id.end(), group.id.begin());
  return group;
}

Expected<std::optional<std::vector<std::uint8_t>>> read_group(const shm::Packet& packet) {
  using Id = std::vector<std::uint8_t>;
  ReplicaGoodbye goodbye;
  if (read_frame(packet, ReplicaFrame::goodbye, goodbye)) return std::optional<Id>();
  ReplicaGroup group;
  if (!shm::read_as(packet, group) || group.kind != ReplicaFrame::group ||
      group.id_bytes > kGroupIdBytes)
    return bad_frame("no group");
  if (packet.descriptors.size() != (group.id_bytes == 0 ? 1 : 0))
    return bad_frame("a group with other descriptors than its kind has");
  return std::optional<Id>(Id(group.id.begin(), group.id.begin() + group.id_bytes));
}

Expected<std::optional<ReplicaTask>> read_task(const shm::Packet& packet) {
  ReplicaGoodbye goodbye;
  if (read_frame(packet, ReplicaFrame::goodbye, goodbye)) return std::optional<ReplicaTask>();
  ReplicaTask task;
  if (!read_frame(packet, ReplicaFrame::task, task)) return bad_frame("no task");
  if (task.has_buffers > 1 || task.by_group > 1 || task.step < 0 || task.deal.ranks < 0)
    return bad_frame("a task with numbers out of range");
  return std::optional<ReplicaTask>(task);
}

Expected<ReplicaResult> read_result(const shm::Packet& packet, Step step) {
  ReplicaResult result;
  if (!read_frame(packet, ReplicaFrame::result, result)) return bad_frame("no result");
  if (result.error_bytes > kReplicaErrorBytes || result.has_buffers > 1 || result.samples < 0 ||
      result.length < 0)
    return bad_frame("a result with numbers out of range");
  if (result.step != step && result.error_bytes == 0)
    return bad_frame("the result of step " + std::to_string(result.step) + ", not of " +
                     std::to_string(step));
  return result;
}

}  // namespace grapevine
