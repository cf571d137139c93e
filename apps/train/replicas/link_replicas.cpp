#include "apps/train/replicas/link_replicas.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/replicas/replica_frames.hpp"
#include "apps/train/replicas/replica_greeting.hpp"
#include "apps/train/replicas/serve_lead.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "apps/train/train_job.hpp"
#include "apps/train/train_resume.hpp"
#include "gpu/device.hpp"
#include "messages/text/number_text.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

// All that decides which gradient a replica computes, and how it is cut into slices.
std::string settings_text(const TrainJob& job) {
  const TrainOptions& o = job.options;
  const Horizon& horizon = job.run.parts->horizon;
  JobIdentity all = identity_of(job);
  all["data-source"] = o.data;
  all["init"] = o.init;
  all["skip-damaged"] = o.skip_damaged ? "true" : "false";
  all["log-every"] = std::to_string(o.log_every);
  all["steps"] = std::to_string(horizon.steps);
  all["first-step"] = std::to_string(horizon.first_step);
  all["first-epoch"] = number_text(horizon.first_epoch);
  all["sampled-ranks"] = std::to_string(job.sampled_ranks());
  std::string text;
  for (const auto& [name, value] : all) text += name + "=" + value + "\n";
  return text;
}

ReplicaWorker worker_of(const TrainJob& job, const LinkedReplica& replica) {
  const LaunchedProcess& launched = job.processes.launched;
  ReplicaWorker worker;
  worker.address =
      launched.head_host + ":" + std::to_string(launched.head_port) + " " + launched.job;
  if (const char* token = std::getenv(kJobTokenVariable)) worker.secret = token;
  worker.settings = settings_text(job);
  worker.worker = job.processes.worker;
  worker.shape = replica.shape;
  worker.may_group =
      replica.device.is_cuda() && replica.shared.empty() && cuda_process_groups().join != nullptr;
  return worker;
}

std::string lead_name(const TrainJob& job) {
  return "process " + std::to_string(job.processes.process_of(0));
}

Error lost_lead(const TrainJob& job) {
  return {Errc::peer_down, lead_name(job) + ", the lead of this process's worker, is lost"};
}

Error of_member(const TrainJob& job, const Error& why) {
  const std::string lead = lead_name(job) + ", the lead of this process's worker";
  if (why.code != Errc::timeout) return {why.code, lead + ": " + why.message};
  return {why.code, fmt::format("{}, did not answer within {} s (--join-timeout): {}: see its "
                                "error; all processes need the same GRAPEVINE_JOB_TOKEN and "
                                "--processes-per-worker",
                                lead, number_text(job.options.join_timeout_s), why.message)};
}

Expected<std::shared_ptr<GradientGroup>> join_group(const TrainJob& job,
                                                    const LinkedReplica& replica,
                                                    const ProcessGroups::Id& id,
                                                    const Cancelled& lost) {
  if (id.empty()) return std::shared_ptr<GradientGroup>();
  const auto join = cuda_process_groups().join;
  if (!join) return Error{Errc::protocol, "the lead of this process's worker asks for NCCL"};
  return join(id, replica.device.index(), static_cast<std::size_t>(job.processes.replica),
              static_cast<std::size_t>(job.processes.replicas), first_step_limit(job.options),
              lost);
}

Expected<std::shared_ptr<GradientGroup>> join_as_member(TrainJob& job, const LinkedReplica& replica,
                                                        ReplicaClock::time_point deadline) {
  auto lead = join_lead(worker_of(job, replica), job.processes.replica, deadline, nullptr);
  if (!lead) return of_member(job, lead.error());
  // The lead waits for other members meanwhile, no longer than it may.
  const auto id = await_group(*lead);
  if (!id) return id.error().code == Errc::peer_down ? lost_lead(job) : of_member(job, id.error());
  const int socket = lead->socket.get();
  auto group = join_group(job, replica, id->value_or(ProcessGroups::Id()),
                          [socket] { return shm::has_ended(socket); });
  if (!group && shm::has_ended(socket)) return lost_lead(job);
  if (!group) return group;
  if (*group) lead->group = std::make_shared<MemberGroup>(*std::move(group));
  job.lead = std::make_shared<LeadLink>(*std::move(lead));
  return job.lead->group;
}

std::vector<std::string> replica_names(const TrainJob& job, const std::string& rank) {
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < job.processes.replicas; ++i)
    names.push_back(
        fmt::format("{}, replica {}, process {}", rank, i, job.processes.process_of(i)));
  return names;
}

// As the lead decides it; empty: on the host. Errors: NCCL's.
Expected<ProcessGroups::Id> choose_process_group(const TrainJob& job,
                                                 const LinkedReplica& replica) {
  const bool grouped = job.members->may_group();
  const std::string begin =
      fmt::format("{}: {} replicas in processes of their own: gradients are summed ", replica.rank,
                  job.processes.replicas);
  if (grouped) {
    spdlog::info("{}by NCCL, on a GPU each", begin);
    return cuda_process_groups().make_id();
  }
  const std::string why = replica.device.is_cpu()   ? "the lead's device is a CPU"
                          : !replica.shared.empty() ? replica.shared
                                                    : "one of them has no GPU that is its own, or "
                                                      "this build has no NCCL";
  spdlog::log(replica.device.is_cpu() ? spdlog::level::info : spdlog::level::warn,
              "{}on the host, as {}", begin, why);
  return ProcessGroups::Id();
}

// Announces the choice to the members and joins the group; null: there is none.
Expected<std::shared_ptr<GradientGroup>> open_as_lead(TrainJob& job, const LinkedReplica& replica) {
  const auto id = choose_process_group(job, replica);
  if (!id) return id.error();
  if (auto announced = job.members->announce_group(*id); !announced) return announced.error();
  return join_group(job, replica, *id, [members = job.members] { return members->has_lost_one(); });
}

Expected<std::shared_ptr<GradientGroup>> accept_as_lead(TrainJob& job, const LinkedReplica& replica,
                                                        ReplicaClock::time_point deadline) {
  auto members =
      WorkerMembers::make(replica.shape, replica_names(job, replica.rank), replica.limits);
  if (!members) return members.error();
  job.members = *std::move(members);
  if (auto all = job.members->accept(worker_of(job, replica), deadline, nullptr); !all)
    return all.error();
  auto group = open_as_lead(job, replica);
  if (!group) {
    // The members wait for the lead, or for each other.
    job.members->abandon();
    const std::string lost = job.members->first_lost();
    if (lost.empty()) return group;
    spdlog::warn("{}: {}", replica.rank, group.error().message);
    return Error{Errc::peer_down, lost};
  }
  if (!*group) return group;
  return std::shared_ptr<GradientGroup>(std::make_shared<LeadGroup>(job.members, *group));
}

}  // namespace

Expected<std::shared_ptr<GradientGroup>> link_replicas(TrainJob& job,
                                                       const LinkedReplica& replica) {
  const Duration timeout = from_seconds(job.options.join_timeout_s);
  const auto deadline =
      ReplicaClock::now() + std::chrono::duration_cast<ReplicaClock::duration>(timeout);
  return job.processes.is_member() ? join_as_member(job, replica, deadline)
                                   : accept_as_lead(job, replica, deadline);
}

Expected<void> serve_lead_of(TrainJob& job, const std::function<bool()>& stop_requested) {
  if (job.lead->dismissed) return {};
  Compute& own = *job.run.computes[static_cast<std::size_t>(job.local_ranks.front())];
  auto served = serve_lead(own, *job.lead, job.processes.replica, lead_name(job), stop_requested);
  if (const auto group = std::dynamic_pointer_cast<MemberGroup>(job.lead->group); group && served)
    group->dismiss();
  return served;
}

}  // namespace grapevine
