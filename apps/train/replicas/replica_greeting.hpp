// The beginning of a link between the lead of a worker and a member: both prove that they belong to
// one job, then the member shows that it was started as the lead was.
//
//   member → lead  ReplicaHello with a nonce
//   lead → member  ReplicaHello with a nonce and its proof
//   member → lead  ReplicaClaim with its proof, version, settings and shape
//   lead → member  ReplicaAnswer with the descriptor of the shared memory; or a refusal
//
// A proof is an HMAC under the job's secret of both nonces, the worker and the replica. Nothing of
// a process is used before its proof, except that it has the user of this one (SO_PEERCRED).
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "apps/train/replicas/replica_memory.hpp"
#include "gpu/replicas/gradient_group.hpp"
#include "messages/expected.hpp"
#include "net/cancelled.hpp"
#include "net/file_descriptor.hpp"
#include "net/shm/shm_socket.hpp"
#include "net/token.hpp"

namespace grapevine {

using ReplicaClock = std::chrono::steady_clock;

inline constexpr std::size_t kReplicaProofDigits = 64;
inline constexpr std::size_t kReplicaVersionCharacters = 32;  // at most, of build_version()

struct ReplicaHello {
  static constexpr std::uint32_t kMagic = 0x52505647;  // "GVPR" in memory order
  static constexpr std::uint32_t kVersion = 2;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t worker = 0;
  std::int32_t replica = 0;  // of the member, in both directions
  std::array<char, 2 * kNonceBytes> nonce{};
  std::array<char, kReplicaProofDigits> proof{};  // of the lead
};

struct ReplicaClaim {
  std::array<char, kReplicaProofDigits> proof{};
  std::array<char, kReplicaProofDigits> settings{};
  std::array<char, kReplicaVersionCharacters> version{};  // of the program
  std::int64_t parameters = 0, buffers = 0;
  std::int32_t replicas = 0;
  std::uint32_t may_group = 0;  // 0 or 1: ReplicaWorker::may_group
};

enum class ReplicaRefusal : std::uint32_t { none, proof, replica, version, settings, model };

struct ReplicaAnswer {
  ReplicaRefusal refusal = ReplicaRefusal::none;
};

// One line without names; what the processes of a worker must have in common.
const char* describe(ReplicaRefusal refusal);

// The worker, as each of its processes knows it.
struct ReplicaWorker {
  std::string address;   // of the job, the same in all its processes and in no other job at a time
  std::string secret;    // of the job; may be empty
  std::string settings;  // a text of all that must be the same in its processes
  std::int32_t worker = 0;
  ReplicaShape shape;
  // Of this process alone: it has a GPU that no other worker uses, and NCCL.
  bool may_group = false;

  // Of the lead's socket: a digest, which only processes with the secret can tell.
  std::string socket_name() const;
};

// A member that a lead has greeted.
struct GreetedMember {
  std::int32_t replica = 0;
  ReplicaRefusal refusal = ReplicaRefusal::none;
  bool may_group = false;
};
// Of a connection that the lead has accepted. `memory`: passed to a member that is not refused.
// `joined(replica)`: whether that one is here already. Errors (protocol, timeout, peer_down): the
// connection is not that of a process of this job.
Expected<GreetedMember> greet_member(int socket, const ReplicaWorker& own,
                                     const ReplicaMemory& memory,
                                     const std::function<bool(std::int32_t replica)>& joined,
                                     ReplicaClock::time_point deadline, const Cancelled& cancelled);

// A member's end of the link. The socket closes first: the end of a group may wait for the lead,
// which does not wait for a member whose socket has closed.
struct LeadLink {
  std::shared_ptr<GradientGroup> group;  // of all replicas; null: the lead sums
  ReplicaMemory memory;
  FileDescriptor socket;
  bool dismissed = false;  // the run of the lead has ended before it used this process
};
// Connects, again and again until `deadline`, as replica `replica`. Errors: timeout; bad_input:
// refused, or of another job; protocol; io: no memory or descriptors for that of the lead; failed:
// cancelled. Each text is without names.
Expected<LeadLink> join_lead(const ReplicaWorker& own, std::int32_t replica,
                             ReplicaClock::time_point deadline, const Cancelled& cancelled);

}  // namespace grapevine
