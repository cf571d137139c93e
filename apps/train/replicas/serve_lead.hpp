// The work of a member: gradients for the lead of its worker, until the lead ends.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/replicas/group_of_processes.hpp"
#include "apps/train/replicas/replica_greeting.hpp"
#include "gpu/compute.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The group of a member, over processes. It is aborted at its end, unless the lead has dismissed
// the member after a gradient: the end of NCCL's group waits for all processes, and those of a
// worker that has failed do not come.
class MemberGroup final : public GroupOfProcesses {
 public:
  explicit MemberGroup(std::shared_ptr<GradientGroup> group) : GroupOfProcesses(std::move(group)) {}
  ~MemberGroup() override {
    if (!is_used() || !dismissed_) GroupOfProcesses::abort();
  }
  MemberGroup(const MemberGroup&) = delete;
  MemberGroup& operator=(const MemberGroup&) = delete;

  // The lead ends its part of the group as well.
  void dismiss() { dismissed_ = true; }

 private:
  std::atomic<bool> dismissed_{false};
};

// Waits, without a limit, for the lead's decision how gradients are summed, which it takes once all
// members have joined: the id of a group to join, or an empty one: the lead sums, in memory that
// `link` has then; or nothing: the lead has ended (link.dismissed). Errors: peer_down: the lead is
// lost; protocol: it sends a malformed frame, or memory of another shape; io: no memory or
// descriptors for that of the lead. Each text is without names.
Expected<std::optional<std::vector<std::uint8_t>>> await_group(LeadLink& link);

// Returns when the lead reports that the run has ended. Waits for requests as long as the lead
// lives: a rank may wait for others. `compute`: of replica `replica`. `lead`: its name, for errors.
// `stop_requested`: asked about ten times a second between requests; the run is the lead's, so the
// first request goes to it, as SIGTERM, and the member serves until the lead has ended the run.
// Gradients are computed on the calling thread, which may stay bound to the CPUs near the device
// (bind_thread()): it should compute nothing else afterwards.
// `compute` has link.group, where there is one, which is aborted as soon as the lead is lost.
// Errors: peer_down: the lead is lost; protocol: it sends a malformed frame.
Expected<void> serve_lead(Compute& compute, const LeadLink& link, std::int32_t replica,
                          const std::string& lead, const std::function<bool()>& stop_requested);

}  // namespace grapevine
