#include "apps/train/replicas/worker_processes.hpp"

#include <fmt/format.h>

#include <string>

#include "apps/train/train_options.hpp"

namespace grapevine {
namespace {

std::string option_text(const TrainOptions& o) {
  return "--processes-per-worker " + std::to_string(o.processes_per_worker);
}

Expected<void> check_other_options(const TrainOptions& o, bool continues) {
  const std::string name = option_text(o);
  if (o.devices_per_worker > 1)
    return bad_input(
        fmt::format("{} with --devices-per-worker {}: each process computes on one "
                    "device: leave one of them out",
                    name, o.devices_per_worker));
  if (o.workers != kWorkersAsUsual && o.workers != 1)
    return bad_input(
        fmt::format("{} with --workers {}: a worker has whole processes: leave "
                    "--workers out",
                    name, o.workers));
  if (o.place || o.max_ranks > 0)
    return bad_input(name + ": processes do not join a run of such workers: leave " +
                     (o.place ? "--join" : "--max-ranks") + " out");
  if (continues)
    return bad_input(name +
                     ": the launcher counts processes, and cannot continue a run without "
                     "those of a worker: use --on-failure stop or restart");
  return {};
}

// Whether the processes of each worker are on one host. Hosts have consecutive processes then, and
// whole workers.
bool shares_host(const LaunchedProcess& launched, std::int32_t replicas) {
  return launched.local_processes % replicas == 0 &&
         launched.local_process % replicas == launched.process % replicas;
}

Expected<void> check_processes(const std::string& name, const LaunchedProcess& launched,
                               std::int32_t replicas) {
  if (launched.processes % replicas != 0)
    return bad_input(fmt::format("{}: the job has {} processes: start a multiple of {}", name,
                                 launched.processes, replicas));
  if (shares_host(launched, replicas)) return {};
  return bad_input(fmt::format(
      "{}: the processes of a worker share a host, but process {} is number {} of the {} on its "
      "host, by {}'s variables: start a multiple of {} consecutive processes on each host (srun "
      "--distribution=block --ntasks-per-node={})",
      name, launched.process, launched.local_process, launched.local_processes, launched.launcher,
      replicas, replicas));
}

}  // namespace

Expected<WorkerProcesses> split_processes(const TrainOptions& options, bool continues,
                                          std::optional<LaunchedProcess>& launched) {
  WorkerProcesses made;
  if (options.processes_per_worker == 1) return made;
  const std::string name = option_text(options);
  if (!launched)
    return bad_input(name +
                     ": no launcher has started several processes: use 'grapevine launch -n N -- "
                     "train …', srun or torchrun; in one process, --devices-per-worker gives a "
                     "worker several GPUs");
  if (auto fits = check_other_options(options, continues); !fits) return fits.error();
  const auto replicas = static_cast<std::int32_t>(options.processes_per_worker);
  if (auto fits = check_processes(name, *launched, replicas); !fits) return fits.error();
  made.launched = *launched;
  made.replicas = replicas;
  made.replica = launched->process % replicas;
  made.worker = launched->process / replicas;
  for (std::int32_t* number : {&launched->process, &launched->processes, &launched->local_process,
                               &launched->local_processes})
    *number /= replicas;
  return made;
}

}  // namespace grapevine
