// What a lead and its members send each other after the greeting: one packet each, of a fixed
// length. The vectors beside it are in their shared memory (replica_memory.hpp).
//
//   lead → member  ReplicaGroup, once all have joined: how gradients are summed; where that is on
//                  the host, with the descriptor of the memory for the members' gradients. Or
//                  ReplicaGoodbye: the lead has failed before
//   lead → member  ReplicaTask: compute this gradient; or ReplicaGoodbye: the run has ended
//   member → lead  ReplicaResult
//
// Both run the same version on the same host: the numbers are in the host's order.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/expected.hpp"
#include "messages/gradient.hpp"
#include "net/shm/shm_socket.hpp"

namespace grapevine {

enum class ReplicaFrame : std::uint32_t { task = 1, goodbye = 2, result = 3, group = 4 };

inline constexpr std::size_t kGroupIdBytes = 128;  // NCCL's

struct ReplicaGroup {
  ReplicaFrame kind = ReplicaFrame::group;
  std::uint32_t id_bytes = 0;  // of `id`; 0: gradients are summed on the host
  std::array<std::uint8_t, kGroupIdBytes> id{};
};

struct ReplicaTask {
  ReplicaFrame kind = ReplicaFrame::task;
  std::uint32_t has_buffers = 0;  // 0 or 1
  // 0 or 1: z and the buffers are on the lead's device, and come by the group; else they are in the
  // shared memory.
  std::uint32_t by_group = 0;
  std::uint32_t zero = 0;
  Step step = 0;
  Deal deal;
};

struct ReplicaGoodbye {
  ReplicaFrame kind = ReplicaFrame::goodbye;
  std::uint32_t zero = 0;
};

// Longer error texts are cut.
inline constexpr std::size_t kReplicaErrorBytes = 400;

struct ReplicaResult {
  ReplicaFrame kind = ReplicaFrame::result;
  std::uint32_t has_buffers = 0;  // 0 or 1
  Step step = 0;
  double loss = 0, top1 = 0, top5 = 0;
  std::int64_t samples = 0, length = 0;
  double data_seconds = 0, compute_seconds = 0, device_seconds = 0;
  std::uint32_t error_bytes = 0;  // of `error`
  std::array<char, kReplicaErrorBytes> error{};
};

static_assert(sizeof(ReplicaResult) <= shm::kLongestPacket);

// All of a request but its vectors and `parts`: a remote replica hands over no parts, as its
// gradient is one of several that are added.
ReplicaTask task_of(const GradientRequest& request);
// Without vectors.
GradientRequest request_of(const ReplicaTask& task);

ReplicaResult result_of(const Gradient& gradient);
// Without vectors.
Gradient gradient_of(const ReplicaResult& result);

// `id`: of the group that all replicas join; empty: none. REQUIRES: at most kGroupIdBytes.
ReplicaGroup group_of(const std::vector<std::uint8_t>& id);
// The same id; nothing: goodbye. Errors (protocol): no such frame, or without its descriptor.
Expected<std::optional<std::vector<std::uint8_t>>> read_group(const shm::Packet& packet);

// What a member receives; nothing: goodbye. Errors (protocol): no such frame.
Expected<std::optional<ReplicaTask>> read_task(const shm::Packet& packet);
// What a lead receives as the result of `step`. Errors (protocol): no such frame, another step, a
// number out of range.
Expected<ReplicaResult> read_result(const shm::Packet& packet, Step step);

}  // namespace grapevine
