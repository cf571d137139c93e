// WorkerMembers: the other processes of a worker, as its lead uses them.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "apps/train/replicas/group_of_processes.hpp"
#include "apps/train/replicas/replica_greeting.hpp"
#include "gpu/compute.hpp"
#include "messages/text/log_limit.hpp"
#include "messages/time.hpp"

namespace grapevine {

// The longest waits for a gradient of a member.
struct ReplicaLimits {
  Duration first;  // until its first one has come: models and data are warmed up
  Duration usual;  // then; more, up to `first`, where one has taken more than a quarter of this
};

// The links to replicas 1 … replicas - 1. gradient() may be called for different replicas at once,
// each on a thread of its own; all others on one thread, while none of these runs.
class WorkerMembers {
 public:
  // `names`: of the replicas, for errors, from replica 0. Errors (io): no shared memory.
  static Expected<std::shared_ptr<WorkerMembers>> make(const ReplicaShape& shape,
                                                       std::vector<std::string> names,
                                                       const ReplicaLimits& limits);
  // A process that ends before its run does, for example without a folder, dismisses its members.
  ~WorkerMembers() { dismiss(); }
  WorkerMembers(const WorkerMembers&) = delete;
  WorkerMembers& operator=(const WorkerMembers&) = delete;

  // Listens until all have joined. A connection that is not of this job is closed, and the log has
  // a line; one that sends nothing delays no other. Errors: timeout: a process has not joined by
  // `deadline`, with its name; bad_input: a process of this job does not fit, with its name; io: no
  // socket, or no descriptors are left; failed: cancelled.
  Expected<void> accept(const ReplicaWorker& own, ReplicaClock::time_point deadline,
                        const Cancelled& cancelled);

  // After accept(): whether all processes may join a group.
  bool may_group() const { return may_group_; }
  // Tells the members how gradients are summed. `id`: of the group that they join; empty: here, in
  // memory that is made now. Errors: peer_down: a member is lost, with its name: a group would wait
  // for it; io: no memory.
  Expected<void> announce_group(const std::vector<std::uint8_t>& id);
  // Whether the process at the other end of a link has ended. Before abandon(); any thread.
  bool has_lost_one() const { return first_ended() != 0; }

  // For tests: a replica whose greeting is over.
  void adopt(std::int32_t replica, FileDescriptor socket);
  ReplicaMemory& memory() { return memory_; }

  // Of a member. Each of the members gets the same requests, in the same order: the first call of a
  // request copies z for all; where z is on the lead's device, and there is a group, the lead's
  // replica gives it to all by that, and nothing is copied here. The vectors of the result are in
  // the shared memory, until the next request. A member that is lost, late, or sends a malformed
  // frame, fails this request and all later ones: Gradient::error, without the replica's number.
  Gradient gradient(std::int32_t replica, GradientRequest request);

  // Ends all links: gradient() returns, and the members end. Any thread. Idempotent.
  void abandon();
  // The first member whose link had ended before abandon(), or that was late or malformed, as an
  // error; empty: none. Any thread.
  std::string first_lost() const;

  // Tells the members that the run has ended. Those that wait for a request, or for the group, end
  // without an error. Idempotent.
  void dismiss();

 private:
  struct Link {
    FileDescriptor socket;
    std::string lost;            // why it is of no use; empty: it is
    std::uint64_t requests = 0;  // so far
    Duration slowest{0};         // answer; 0: none yet
  };

  WorkerMembers(ReplicaMemory memory, std::vector<std::string> names, const ReplicaLimits& limits);
  Expected<void> admit(int listener, const ReplicaWorker& own, std::deque<FileDescriptor>& silent);
  void refuse(const ReplicaWorker& own, const std::string& why);
  Expected<void> take(FileDescriptor socket, const ReplicaWorker& own,
                      ReplicaClock::time_point deadline, const Cancelled& cancelled);
  Expected<void> publish(std::uint64_t request, const GradientRequest& content);
  // Of a gradient that is asked for now.
  Duration limit_of(const Link& to) const;
  Expected<Gradient> ask(std::int32_t replica, GradientRequest& request);
  Link& link(std::int32_t replica) { return links_[static_cast<std::size_t>(replica)]; }
  // Of the first whose process has ended its link; 0: none.
  std::int32_t first_ended() const;
  // Of the first that is not here; 0: all are.
  std::int32_t missing() const;
  std::string name(std::int32_t replica) const;

  ReplicaMemory memory_;
  const std::vector<std::string> names_;
  const ReplicaLimits limits_;
  std::vector<Link> links_;  // by replica; each used by the thread of its replica
  LogLimit refused_;
  bool may_group_ = false;
  bool grouped_ = false;  // members return no gradients: those of the group are the mean
  std::atomic<bool> abandoned_{false};
  mutable std::mutex mutex_;     // guards the rest
  std::uint64_t published_ = 0;  // requests whose vectors were copied
  std::string first_lost_;
};

// The group of a lead, over processes: it ends together with the links, so that no member waits in
// it. Its end dismisses the members first, as that of NCCL waits for theirs. One in which nothing
// was computed is aborted: other processes may have failed before they would end theirs.
class LeadGroup final : public GroupOfProcesses {
 public:
  LeadGroup(std::shared_ptr<WorkerMembers> members, std::shared_ptr<GradientGroup> group)
      : GroupOfProcesses(std::move(group)), members_(std::move(members)) {}
  ~LeadGroup() override {
    members_->dismiss();
    if (!is_used()) GroupOfProcesses::abort();
  }
  LeadGroup(const LeadGroup&) = delete;
  LeadGroup& operator=(const LeadGroup&) = delete;

  std::string lost_replica() const override { return members_->first_lost(); }
  void abort() override {
    members_->abandon();
    GroupOfProcesses::abort();
  }

 private:
  const std::shared_ptr<WorkerMembers> members_;
};

// A replica in another process. The initial vectors are those of the lead's replica, which has the
// same model. It evaluates nothing, and does not report that it waits for its data.
class RemoteReplica final : public Compute {
 public:
  RemoteReplica(std::shared_ptr<WorkerMembers> members, std::int32_t replica,
                const Compute& replica_of_lead)
      : members_(std::move(members)),
        replica_(replica),
        parameters_(replica_of_lead.initial_parameters()),
        buffers_(replica_of_lead.initial_buffers()) {}

  std::int64_t dimension() const override { return parameters_.numel(); }
  FrozenTensor initial_parameters() const override { return parameters_; }
  FrozenTensor initial_buffers() const override { return buffers_; }
  Gradient gradient(GradientRequest request) override {
    return members_->gradient(replica_, std::move(request));
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override;

 private:
  const std::shared_ptr<WorkerMembers> members_;
  const std::int32_t replica_;
  const FrozenTensor parameters_, buffers_;
};

}  // namespace grapevine
