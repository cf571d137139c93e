// Options of `train`, from a job file, the environment and the command line.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "algorithms/wiring/wiring.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// 4 in one process, 1 in each where a launcher started several.
inline constexpr std::int64_t kWorkersAsUsual = std::numeric_limits<std::int64_t>::min();

// Seconds of --timeout where it is not given.
inline constexpr double kUsualTimeout = 300;

// What the algorithm of a job file means beside another one of the command line.
enum class StateJob {
  none,     // the file is a user's, or repeats a run: the command line has precedence
  refuses,  // it is that of the state to resume
  counts,   // the same, and the command is one that is repeated: the file has precedence
};

struct TrainOptions {
  std::string job_file;
  std::string algorithm = "sgp";
  std::vector<std::string> set;  // wiring.KEY=VALUE
  // Of this process; in a TrainJob of the whole run.
  std::int64_t workers = kWorkersAsUsual;
  std::string transport;          // empty: inproc, or auto where there are several processes
  std::string network_interface;  // that other processes reach this one on
  std::string tls;                // folder with certificates; empty: nothing is encrypted
  bool trust_fabric = false;      // with tls: UCX may go between hosts
  double join_timeout_s = 60;
  std::string join;  // HOST:PORT of process 0 of a running job that has lost a process; empty: none
  std::string cluster;         // HOST:PORT of the first node that is to run the job; empty: here
  std::int32_t processes = 0;  // there; 0: one in each slot
  std::string on_failure;      // there; empty: continue
  std::int64_t restarts = 3;   // there
  std::string secret_file;     // of these nodes
  std::string model = "lenet";
  std::string data = "glyphs";
  std::string augment = "auto";
  bool skip_damaged = false;
  std::string loss = "auto";
  double label_smoothing = 0;
  double epochs = 1;
  std::int64_t steps = 0;  // of each worker; 0: as many as the epochs take
  std::int64_t batch_size = 32;
  std::int64_t accumulate = 1;
  double lr = 0.03;
  bool lr_per_256 = false;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  bool no_decay = false;
  std::string optimizer = "sgd";
  std::string lr_schedule = "constant";
  std::string schedule;  // file of changes while the job runs; empty: none
  double warmup_epochs = 0;
  std::int64_t warmup_steps = 0;
  double warmup_from = 0;
  std::int64_t seed = 1;
  std::string delay;
  std::string device = "auto";
  std::string peers = "host";  // host | device | auto: where ranks keep their models
  // Models of a rank that lie in pinned memory at most. A rank has x, z and up to five buffers that
  // its role keeps for shares which peers still read (osgp: three); one more is for a checkpoint or
  // a validation.
  std::int64_t pinned_models = 8;
  std::string bind_threads = "near";  // near | none: the CPUs of threads that launch a GPU's work
  std::string precision = "fp32";     // fp32 | tf32 | bf16 | fp16
  bool channels_last = false;
  bool cudnn_benchmark = false;
  bool cuda_graphs = false;
  std::int64_t devices_per_worker = 1;
  std::int64_t processes_per_worker = 1;
  int threads = 0;  // 0: the cores divided by the workers
  double checkpoint_every = 1;
  // Of the job that a process joins: see HorizonStart.
  std::string clock_start;
  std::string checkpoint_keep = "best";  // best | latest | all | N
  std::int64_t early_stop = 0;           // validations without a better one; 0: never
  std::string validate = "epoch";        // epoch | end
  std::string requeue_command;           // run after SIGUSR1 has stopped the training
  std::string resume;                    // "auto" until settle_resume()
  std::string init;                      // weights that training begins with: a file or a run
  std::string out;
  bool overwrite = false;
  std::string trace = "on";
  std::int64_t trace_limit = 0;   // bytes of each process's trace; 0: no limit
  std::int64_t trace_sample = 1;  // every so many-th step is recorded
  std::string metrics_port;       // [HOST:]PORT; empty: none
  std::string control;            // HOST:PORT beside the socket in the folder; empty: none
  bool tensorboard = false;
  std::int64_t log_every = 1;
  std::int64_t min_ranks = 0;
  std::int64_t max_ranks = 0;  // 0: as many as begin
  double timeout_s = kUsualTimeout;
  double stall_abort_s = 0;   // 0: no wait ends the run
  double lost_after_s = 2.5;  // 0: silence alone ends no process before the timeout
  bool json = false;

  std::map<std::string, std::string> changed;           // of a running job: option -> value
  std::optional<LaunchedProcess> place;                 // in the job that is joined
  std::shared_ptr<const tcp::TlsContext> certificates;  // of `tls`, by load_certificates()
  Wiring wiring;                        // of the job file; the preset lies under it, `set` on top
  Places places;                        // in the job file
  std::optional<std::string> job_text;  // of the job file, where it has been read and checked
  StateJob of_state = StateJob::none;   // the job file
  std::string notice;  // a line for people: which of two algorithms counts; empty: there is one
};

inline std::uint64_t seed_of(const TrainOptions& options) {
  return static_cast<std::uint64_t>(options.seed);
}

// For how long the first step of a rank may take: --timeout, or an hour without it.
Duration first_step_limit(const TrainOptions& options);

// Of one worker.
inline std::int64_t step_samples(const TrainOptions& options) {
  return options.batch_size * options.accumulate;
}

// Declares the options, each also as GRAPEVINE_<NAME>.
void declare_train_options(CLI::App& app, TrainOptions& options);

// Reads options.job_file, where given: its keys are option names, its table [wiring] a wiring. A
// value that the environment or the command line has set stays. Errors (bad_input): file, line and
// key.
Expected<void> read_job_file(CLI::App& app, TrainOptions& options);

// The same for the text of a job file, which errors call `name`.
Expected<void> read_job_text(CLI::App& app, TrainOptions& options, const std::string& text,
                             const std::string& name);

// Reads the folder of --tls, once. Errors (bad_input): the file and what is wrong with it.
Expected<void> load_certificates(TrainOptions& options);

// After read_job_file(): a wiring that names its exchange is complete by itself; where no algorithm
// is given beside it, it is kCustomWiring.
void name_own_wiring(const CLI::App& app, TrainOptions& options);

// After read_job_file(): one of --epochs and --steps counts: that of the source with precedence.
// Errors (bad_input): both are from the same source, or there are no steps.
Expected<void> settle_length(const CLI::App& app, TrainOptions& options);

// --momentum that was given, where no step uses it. Errors: bad_input.
Expected<void> check_momentum(const CLI::App& app, const TrainOptions& options);

// After settle_length(): the options that `train` on another machine needs to run the same job:
// what the command line, the environment and the job file say, without what concerns this process
// alone (OptionTraits::stays_here, GRAPEVINE_NETWORK_INTERFACE).
std::vector<std::string> travelling_arguments(const CLI::App& app, const TrainOptions& options);

// The folder that was asked for, by --out or by resuming the run in it; empty: none was.
std::string given_folder(const TrainOptions& options);

// runs/<date>-<algorithm>: where --out is not given.
std::string dated_folder(const std::string& algorithm);

// The preset, changed by the job file's wiring and then by --set.
Expected<Wiring> effective_wiring(const TrainOptions& options);
// A file with levels that does not say what is around them.
Error level_missing(const std::string& path);

}  // namespace grapevine
