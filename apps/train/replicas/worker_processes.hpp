// WorkerProcesses: which process of a job computes for which worker (--processes-per-worker).
#pragma once
#include <cstdint>
#include <optional>

#include "apps/launched/launcher_environment.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct TrainOptions;

// The place of this process among those that compute for one worker. The lead has the worker's rank
// and is a process of the run; the members compute slices of the worker's batches for it, and no
// other process of the run knows of them.
struct WorkerProcesses {
  std::int32_t replica = 0;  // of this process; 0: the lead
  std::int32_t replicas = 1;
  std::int32_t worker = 0;   // the number of the lead among the processes of the run
  LaunchedProcess launched;  // as the launcher numbers this process

  bool is_member() const { return replica > 0; }
  // The launcher's number of a replica's process.
  std::int32_t process_of(std::int32_t other) const { return launched.process - replica + other; }
};

// The processes of a job as workers of options.processes_per_worker consecutive processes each.
// `launched` becomes the lead's process in a job that has the leads alone; members get their
// lead's. `continues`: the launcher continues a run without lost processes. Errors (bad_input): no
// launcher, processes that do not fit, or a worker of them that are not on one host; an option that
// does not go with it.
Expected<WorkerProcesses> split_processes(const TrainOptions& options, bool continues,
                                          std::optional<LaunchedProcess>& launched);

}  // namespace grapevine
