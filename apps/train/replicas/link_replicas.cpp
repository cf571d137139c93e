#include "apps/train/replicas/link_replicas.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "apps/train/replicas/replica_greeting.hpp"
#include "apps/train/replicas/serve_lead.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "apps/train/train_job.hpp"
#include "messages/text/number_text.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

// All that decides which gradient a replica computes, and how it is cut into slices.
std::string settings_text(const TrainJob& job) {
  const TrainOptions& o = job.options;
  const Horizon& horizon = job.run.parts->horizon;
  JobIdentity all = job.run.identity;
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

ReplicaWorker worker_of(const TrainJob& job, const ReplicaShape& shape) {
  const LaunchedProcess& launched = job.processes.launched;
  ReplicaWorker worker;
  worker.address =
      launched.head_host + ":" + std::to_string(launched.head_port) + " " + launched.job;
  if (const char* token = std::getenv(kJobTokenVariable)) worker.secret = token;
  worker.settings = settings_text(job);
  worker.worker = job.processes.worker;
  worker.shape = shape;
  return worker;
}

Compute& compute_here(const TrainJob& job) {
  return *job.run.computes[static_cast<std::size_t>(job.local_ranks.front())];
}

std::string lead_name(const TrainJob& job) {
  return "process " + std::to_string(job.processes.process_of(0));
}

Error of_member(const TrainJob& job, const Error& why) {
  const std::string lead = lead_name(job) + ", the lead of this process's worker";
  if (why.code != Errc::timeout) return {why.code, lead + ": " + why.message};
  return {why.code, fmt::format("{}, did not answer within {} s (--join-timeout): {}: see its "
                                "error; all processes need the same GRAPEVINE_JOB_TOKEN and "
                                "--processes-per-worker",
                                lead, number_text(job.options.join_timeout_s), why.message)};
}

Expected<void> join_as_member(TrainJob& job, ReplicaClock::time_point deadline) {
  Compute& own = compute_here(job);
  const ReplicaShape shape{own.dimension(), own.initial_buffers().numel(), job.processes.replicas};
  auto lead = join_lead(worker_of(job, shape), job.processes.replica, deadline, nullptr);
  if (!lead) return of_member(job, lead.error());
  job.lead = std::make_shared<LeadLink>(*std::move(lead));
  return {};
}

}  // namespace

Expected<void> link_replicas(TrainJob& job) {
  if (job.processes.replicas == 1) return {};
  const Duration timeout = from_seconds(job.options.join_timeout_s);
  const auto deadline =
      ReplicaClock::now() + std::chrono::duration_cast<ReplicaClock::duration>(timeout);
  if (job.processes.is_member()) return join_as_member(job, deadline);
  return job.members->accept(worker_of(job, job.members->memory().shape()), deadline, nullptr);
}

Expected<void> serve_lead_of(TrainJob& job, const std::function<bool()>& stop_requested) {
  return serve_lead(compute_here(job), *job.lead, job.processes.replica, lead_name(job),
                    stop_requested);
}

}  // namespace grapevine
