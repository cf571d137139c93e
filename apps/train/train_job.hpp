// TrainJob: everything that a training run needs, made and checked before any training starts.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/record/files.hpp"
#include "actors/run/runtime.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "apps/train/replicas/worker_processes.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/train_options.hpp"
#include "gpu/data/data_set.hpp"
#include "gpu/model/model.hpp"
#include "gpu/replicas/gpu_claims.hpp"

namespace grapevine {

class GradientGroup;
struct LeadLink;
class WorkerMembers;

struct TrainJob {
  TrainOptions options;
  Wiring wiring;
  std::optional<LaunchedProcess> launched;  // where the run has several processes
  WorkerProcesses processes;                // that compute for one worker
  std::vector<Rank> local_ranks;            // those of this process
  std::string out;                          // folder, exists and is writable
  FolderLock out_lock;                      // of the head, as long as the run lasts
  std::shared_ptr<const DataSet> data;
  ModelFactory model;
  std::int64_t parameters = 0;
  std::shared_ptr<Compute> evaluator;  // for the model that training ends with
  RunConfig run;
  bool own_threads = true;  // false: one thread computes for all workers
  // The default of --threads for a device, where run.threads is limited to CPUs near it.
  std::optional<int> threads_of_cores;
  std::vector<Step> saved_steps;  // reported, by rank of the checkpoint of a resumed run
  HorizonStart start;             // of a run that continues with other numbers
  std::string continues;          // a line about the run that this one continues, or empty
  // run.parts, kept because `run` is moved into the Runtime.
  std::shared_ptr<const SharedParts> made_parts;
  std::shared_ptr<const GpuClaims> gpu_claims;  // of this process; null: no worker asks for them

  // With several processes for a worker. Of a lead: its members; of a member: its lead. Else null.
  std::shared_ptr<WorkerMembers> members;
  std::shared_ptr<LeadLink> lead;
  // Theirs; null: there is none. Kept here, since its end waits for the members, which end with it
  // when the lead dismisses them.
  std::shared_ptr<GradientGroup> process_group;

  // Process 0 supervises, validates and writes; the others only train.
  bool is_head() const { return !processes.is_member() && (!launched || launched->process == 0); }
  // For which the batches of an epoch are counted: see HorizonStart.
  std::int64_t sampled_ranks() const { return start.ranks > 0 ? start.ranks : options.workers; }
};

// Checks the options of a job that other machines run, without its files, which are theirs. Errors
// (bad_input): a number out of range, a name that is none, a wiring that does not fit.
Expected<void> check_train_options(const TrainOptions& options);

// What another verb makes in its own way. Null: as `train` has it.
struct JobMaker {
  std::function<Expected<void>(TrainJob&)> place = nullptr;  // find_place() and its results
  // Sets job.data, or leaves it out: then job.model is empty, and an epoch is the whole run.
  std::function<Expected<void>(TrainJob&)> data = nullptr;
  std::function<Expected<void>(TrainJob&)> computes = nullptr;   // make_computes()
  std::function<Expected<void>(TrainJob&)> folders = nullptr;    // make_folders()
  std::function<Expected<void>(TrainJob&)> transport = nullptr;  // make_transport()
};

// Errors (bad_input): invalid options, names, files or combinations.
Expected<TrainJob> make_train_job(TrainOptions options, const JobMaker& maker = {});

}  // namespace grapevine
