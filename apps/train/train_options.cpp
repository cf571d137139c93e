#include "apps/train/train_options.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>

#include <fmt/ranges.h>

#include "algorithms/wiring/role_type.hpp"
#include "apps/console/help_format.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/options/two_algorithms.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

std::string preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// How long to train has two names.
bool says_length(const CLI::App& app) {
  return app.get_option("--epochs")->count() > 0 || app.get_option("--steps")->count() > 0;
}

// The options of most runs come first; the others are for --help-all.
void arrange(CLI::App& app) {
  for (const OptionTraits& option : option_traits())
    if (option.help_group != nullptr) show_in_help_all(app, option.help_group, {option.name});
}

// The outputs of a run, and its length.
void declare_outputs(CLI::App& app, TrainOptions& options) {
  add_option(app, "checkpoint-every", options.checkpoint_every,
             "epochs between checkpoints; 0: only at the end");
  add_option(app, "checkpoint-keep", options.checkpoint_keep,
             "best (and the newest) | latest | all | a number of the newest ones");
  add_option(app, "early-stop", options.early_stop,
             "stop after so many validations in a row without a better one; 0: never");
  add_option(app, "validate", options.validate,
             "test the averaged model after each epoch, or at the end: epoch | end");
  add_option(app, "requeue-command", options.requeue_command,
             "on SIGUSR1: checkpoint, stop and run this, e.g. 'scontrol requeue $SLURM_JOB_ID'");
  add_option(app, "resume", options.resume,
             "continue: a run's folder, one of its checkpoints, or auto: the run in --out, which "
             "begins where there is none. Needs no other option; new values of --lr, --epochs, "
             "--batch-size and others count from there on");
  add_option(app, "init", options.init,
             "begin with these weights: a model.pt, a dict of torch.save, a run's folder or a "
             "checkpoint");
  add_option(app, "out", options.out, "folder for outputs [runs/<date>-<algorithm>]");
  add_switch(app, "overwrite", options.overwrite, "replace a finished or interrupted run in --out");
  add_option(app, "trace", options.trace, "record every message: on | off");
  add_option(app, "trace-limit", options.trace_limit,
             "bytes of the trace of each process: its oldest files are removed; 0: no limit");
  add_option(app, "trace-sample", options.trace_sample, "record every so many-th step only");
  add_option(
      app, "metrics-port", options.metrics_port,
      "[HOST:]PORT for Prometheus, path /metrics; without HOST on this machine only, 0.0.0.0: on "
      "all interfaces, NAME@HOST: also under that name; PORT 0: a port that is free [off]");
  add_option(app, "control", options.control,
             "HOST:PORT for 'grapevine control' on other machines, with the job's secret "
             "GRAPEVINE_JOB_TOKEN; on this machine the run's folder is enough [off]");
  add_switch(app, "tensorboard", options.tensorboard, "write curves to DIR/tensorboard");
  add_option(app, "log-every", options.log_every, "steps between rows of metrics.csv");
  add_option(
      app, "timeout", options.timeout_s,
      "seconds without a step of any rank after which the run fails; more where a step usually "
      "takes longer, and an hour for the first step unless a value other than 300 is given. Also "
      "limits a checkpoint, and the silence of a process (2 to 60)");
  add_option(
      app, "stall-abort", options.stall_abort_s,
      "end the run where a rank waits longer than usual, and for so many seconds; 0: report such "
      "waits only");
  add_option(
      app, "lost-after", options.lost_after_s,
      "seconds after which a process that answers nothing while others wait counts as lost, where "
      "the run continues without it; more where its steps usually take longer; 0: after "
      "--timeout, as under launchers that end the job with any of its processes");
  add_option(
      app, "min-ranks", options.min_ranks,
      "ranks that train, below which a run that loses ranks ends; 0: more than half of those that "
      "begin it");
  add_option(app, "max-ranks", options.max_ranks,
             "ranks that may train at most: while fewer do, others --join the running job; 0: as "
             "many as begin it");
  add_switch(app, "json", options.json, "print the summary as one JSON object");
  app.add_option("--clock-start", options.clock_start)->group("");
}

// The model, the data and the loss.
void declare_data(CLI::App& app, TrainOptions& options) {
  add_option(app, "model", options.model,
             fmt::format("TorchScript file, or one of: {}", fmt::join(model_names(), " ")));
  add_option(app, "data", options.data,
             fmt::format("data set, NAME[:PATH]: {}", fmt::join(data_specs(), " ")));
  add_option(app, "augment", options.augment,
             "of images in training: auto (that of the data set) | none | a list of crop, flip, "
             "random-resized-crop");
  add_switch(app, "skip-damaged", options.skip_damaged,
             "take the next sample instead of one that is damaged");
  add_option(app, "loss", options.loss,
             "auto | cross-entropy | mse | bce; auto: cross-entropy for classes, else mse");
  add_option(app, "label-smoothing", options.label_smoothing,
             "part of each label that all classes share, with cross-entropy");
}

// Steps, rates and chance.
void declare_training(CLI::App& app, TrainOptions& options) {
  add_option(app, "epochs", options.epochs, "passes over the data set, all workers together");
  add_option(app, "steps", options.steps, "steps of each worker, instead of epochs");
  add_option(app, "batch-size", options.batch_size, "samples per worker and step");
  add_option(app, "accumulate", options.accumulate,
             "batches of --batch-size whose gradients are averaged into one step");
  add_option(app, "lr", options.lr, "learning rate");
  add_switch(app, "lr-per-256", options.lr_per_256,
             "--lr is the rate for 256 samples per step of all workers together");
  add_option(app, "momentum", options.momentum, "momentum of sgd");
  add_switch(app, "nesterov", options.nesterov, "Nesterov's momentum");
  add_option(app, "weight-decay", options.weight_decay, "L2 penalty");
  add_switch(app, "no-decay", options.no_decay,
             "no weight decay of biases and of the scales and shifts of normalisation: of "
             "parameters with one dimension");
  add_option(app, "optimizer", options.optimizer, "sgd | adam | adamw");
  add_option(app, "lr-schedule", options.lr_schedule,
             "constant | step:GAMMA@T1,T2,… | cosine[:FLOOR] | polynomial[:POWER[,END]] | "
             "exponential:GAMMA[@PERIOD] | one-cycle[:UP[,DIV[,FINAL]]]; times in epochs, or in "
             "steps as 500s");
  add_option(app, "schedule", options.schedule,
             "TOML file of [[change]] tables, each an epoch and what changes there: algorithm, "
             "wiring.KEY, lr, weight-decay");
  add_option(app, "warmup-epochs", options.warmup_epochs,
             "epochs at the start in which the learning rate grows linearly to --lr");
  add_option(app, "warmup-steps", options.warmup_steps, "the same in steps of a worker");
  add_option(app, "warmup-from", options.warmup_from,
             "part of --lr at which the warm-up begins, 0 to 1");
  add_option(app, "seed", options.seed, "seed of parameters, sample order and everything random");
  add_option(app, "delay", options.delay,
             "stragglers: rank=R:DUR, random=K:DUR, rotate=DUR..DUR, length[=DUR] (per time step), "
             "lognormal=MU:SIGMA");
}

void declare_device(CLI::App& app, TrainOptions& options) {
  add_option(
      app, "device", options.device,
      "cpu | cuda[:i] | auto: the GPUs of this machine in turn, or the CPU where it has none");
  add_option(
      app, "peers", options.peers,
      "host | device | auto: the memory in which ranks keep and exchange models; device: the "
      "workers' GPUs; auto: device where it is possible and nothing "
      "is compressed");
  add_option(app, "pinned-models", options.pinned_models,
             "models of each rank that lie in pinned memory at most, from which GPUs copy them, "
             "with --peers host; 0: none");
  add_option(app, "bind-threads", options.bind_threads,
             "near | none: the threads that launch a GPU's work run on the CPUs of its NUMA node, "
             "or on any");
  add_option(app, "devices-per-worker", options.devices_per_worker,
             "GPUs that share a worker's batch; NCCL adds their gradients where no other worker "
             "uses them");
  add_option(app, "processes-per-worker", options.processes_per_worker,
             "consecutive processes of the launcher, on one host, that share a worker's batch, "
             "each with a device");
  add_option(app, "precision", options.precision,
             "fp32 | tf32 | bf16 | fp16: of products and convolutions; tf32 and fp16 (with loss "
             "scaling) on GPUs only");
  add_switch(app, "channels-last", options.channels_last,
             "store images as [B, H, W, C] on the device, which can make convolutions faster");
  add_switch(app, "cudnn-benchmark", options.cudnn_benchmark,
             "cuDNN times its algorithms for each shape; equal runs may then differ in bits");
  add_switch(app, "cuda-graphs", options.cuda_graphs,
             "capture the forward and backward pass once and replay it, where all batches have one "
             "shape; on GPUs only");
  add_option(app, "threads", options.threads, "threads of each worker; 0: cores / workers");
}

}  // namespace

// The usual length of a step is not known before the first one.
Duration first_step_limit(const TrainOptions& options) {
  constexpr Duration kWithoutTimeout = std::chrono::hours(1);
  const bool given = options.timeout_s != kUsualTimeout;
  return given ? from_seconds(options.timeout_s) : kWithoutTimeout;
}

void declare_train_options(CLI::App& app, TrainOptions& options) {
  app.add_option("job", options.job_file, "TOML file with options and a [wiring] table");
  add_option(app, "algorithm", options.algorithm, "preset, or custom: " + preset_names());
  app.add_option("--set", options.set, "wiring.KEY=VALUE: change a part of the wiring")
      ->envname(environment_name("set"))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option(app, "workers", options.workers,
             "ranks that train in this process; 1 in each process that a launcher started")
      ->default_str("4");
  add_option(
      app, "transport", options.transport,
      "inproc | auto | shm | tcp | ucx; auto: shm on one host, ucx where both have a fast device, "
      "else tcp [inproc, or auto between processes]");
  add_option(app, "network-interface", options.network_interface,
             "name or address of the interface that other processes reach this one on");
  add_option(app, "tls", options.tls,
             "folder with certificates ('grapevine node --make-certificates'): encrypt what "
             "processes exchange over the network, which all of them must do [off]");
  add_switch(app, "trust-fabric", options.trust_fabric,
             "with --tls: let UCX, which does not encrypt, carry data between hosts");
  add_option(app, "join-timeout", options.join_timeout_s,
             "seconds to wait for the other processes at the start");
  add_option(app, "join", options.join,
             "HOST:PORT of process 0 of a running job that has lost a process: take its place")
      ->default_str("");
  add_option(app, "cluster", options.cluster,
             "HOST:PORT of a first node: the nodes run the job (see 'grapevine node --help')");
  add_option(app, "processes", options.processes,
             "with --cluster: processes to start [one for each slot]")
      ->default_str("0");
  add_option(app, "on-failure", options.on_failure,
             "with --cluster: continue | stop: what the others do when a process, other than the "
             "first, or its node is lost")
      ->default_str("continue");
  add_option(app, "restarts", options.restarts,
             "with --cluster: how often processes that were killed are started again, in all");
  add_option(app, "secret-file", options.secret_file,
             "with --cluster: file with the nodes' secret [GRAPEVINE_CLUSTER_SECRET]");
  declare_data(app, options);
  declare_training(app, options);
  declare_device(app, options);
  declare_outputs(app, options);
  arrange(app);
}

Expected<void> load_certificates(TrainOptions& options) {
  if (options.tls.empty() || options.certificates) return {};
  auto loaded = tcp::load_certificates(options.tls);
  if (!loaded) return loaded.error();
  options.certificates = *std::move(loaded);
  return {};
}

Expected<void> read_job_file(CLI::App& app, TrainOptions& options) {
  CLI::Option* set = app.get_option("--set");
  const char* more = std::getenv(set->get_envname().c_str());
  if (more != nullptr && *more != '\0' && !from_environment(*set)) put_before(*set, {more});
  const std::string path = options.job_file;
  if (path.empty()) return {};
  const Expected<std::string> text =
      options.job_text ? *options.job_text : read_toml_file(path, "a TOML job file");
  if (!text) return text.error();
  return read_job_text(app, options, *text, path);
}

Expected<void> read_job_text(CLI::App& app, TrainOptions& options, const std::string& text,
                             const std::string& path) {
  auto wiring = Wiring::parse_toml(text, path);
  if (!wiring) return wiring.error();
  options.wiring = std::move(*wiring);
  if (auto settled = settle_algorithm(app, options, text, path); !settled) return settled;
  // --epochs beside a file with steps, or the other way round: the file does not count.
  std::set<std::string> others = {"wiring"};
  if (says_length(app)) others.insert({"epochs", "steps"});
  if (auto read = read_options(app, text, path, others, options.places); !read) return read;
  if (app.get_option("--algorithm")->count() == 0 && options.set.empty() &&
      lacks_outermost_level(options.wiring))
    return level_missing(path);
  // A value of the command line replaces that of the file.
  if (options.wiring.keys().empty())
    for (auto at = options.places.begin(); at != options.places.end();)
      at = at->first.rfind("wiring.", 0) == 0 ? options.places.erase(at) : std::next(at);
  for (const std::string& assignment : options.set)
    options.places.erase(assignment.substr(0, assignment.find('=')));
  return {};
}

void name_own_wiring(const CLI::App& app, TrainOptions& options) {
  const bool names_exchange =
      options.wiring.keys().count("exchange") > 0 ||
      std::any_of(options.set.begin(), options.set.end(), [](const std::string& assignment) {
        return assignment.rfind("wiring.exchange=", 0) == 0;
      });
  if (names_exchange && app.get_option("--algorithm")->count() == 0)
    options.algorithm = kCustomWiring;
}

std::string given_folder(const TrainOptions& options) {
  namespace fs = std::filesystem;
  if (!options.out.empty()) return options.out;
  std::error_code ignored;
  if (!options.resume.empty() && options.resume != "auto" &&
      fs::exists(fs::path(options.resume) / "checkpoint", ignored))
    return options.resume;
  return "";
}

Expected<void> settle_length(const CLI::App& app, TrainOptions& options) {
  const CLI::Option* epochs = app.get_option("--epochs");
  const CLI::Option* steps = app.get_option("--steps");
  if (steps->count() > 0)
    if (auto checked = check_least("--steps", options.steps, 1); !checked) return checked;
  if (epochs->count() == 0 || steps->count() == 0) return {};
  if (from_environment(*epochs) != from_environment(*steps)) {
    if (from_environment(*steps)) options.steps = 0;
    return {};
  }
  return bad_input("--epochs " + number_text(options.epochs) + " and --steps " +
                   std::to_string(options.steps) + ": give one of them");
}

Expected<void> check_momentum(const CLI::App& app, const TrainOptions& options) {
  if (app.get_option("--momentum")->count() == 0 || options.momentum == 0) return {};
  const std::string given = "--momentum " + number_text(options.momentum);
  if (options.optimizer == "adam" || options.optimizer == "adamw")
    return bad_input(given + " does not fit --optimizer " + options.optimizer +
                     ", which has a mean of gradients of its own: drop it, or use sgd");
  const auto wiring = effective_wiring(options);
  if (!wiring) return {};  // make_train_job() says what is wrong with it
  const auto plan = resolve(*wiring);
  if (!plan || plan->role->uses_momentum(*plan)) return {};
  const auto rule = wiring->keys().find("rule");
  const std::string what = rule == wiring->keys().end() ? "exchange = '" + plan->role->name + "'"
                                                        : "rule = '" + rule->second + "'";
  return bad_input(given + " does not fit " + what +
                   ": its clients commit plain steps along the gradient: drop it, or use rule = "
                   "'gem' or 'easgd'");
}

std::vector<std::string> travelling_arguments(const CLI::App& app, const TrainOptions& options) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "job" : option->get_lnames().front();
    if (option->count() == 0 || option_has(name, OptionTraits::stays_here)) continue;
    if (name == "steps" && options.steps == 0) continue;  // --epochs has won
    if (name == "epochs" && options.steps > 0) continue;  // --steps has won
    // An interface of this machine; the nodes have their own.
    if (name == "network-interface" && from_environment(*option)) continue;
    const std::string value = option->results().back();
    const bool is_switch = option->get_items_expected() == 0;
    if (!is_switch) arguments.push_back("--" + name + "=" + value);
    if (is_switch && option->as<bool>()) arguments.push_back("--" + name);
  }
  for (const auto& [key, value] : options.wiring.keys()) {
    arguments.emplace_back("--set");
    arguments.push_back("wiring." + key + "=" + value);
  }
  for (const std::string& assignment : options.set) {
    arguments.emplace_back("--set");
    arguments.push_back(assignment);
  }
  return arguments;
}

std::string dated_folder(const std::string& algorithm) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char date[32];
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local);
  return "runs/" + std::string(date) + "-" + algorithm;
}

Error level_missing(const std::string& path) {
  return bad_input(path +
                   ": the last [[wiring.level]] has `ranks`, so that another level is around it: "
                   "name its algorithm, or leave the ranks out, for the last level has all groups");
}

Expected<Wiring> effective_wiring(const TrainOptions& options) {
  auto preset = find_preset(options.algorithm);
  if (!preset) return preset.error();
  Wiring wiring = options.wiring;
  for (const std::string& assignment : options.set) {
    const std::string prefix = "wiring.";
    const auto equals = assignment.find('=');
    if (assignment.rfind(prefix, 0) != 0 || equals == std::string::npos)
      return bad_input("--set '" + without_control_characters(assignment) +
                       "': expected wiring.KEY=VALUE");
    const std::string key = assignment.substr(prefix.size(), equals - prefix.size());
    if (auto set = wiring.set(key, assignment.substr(equals + 1)); !set) return set.error();
  }
  return on_top_of(preset->wiring, wiring);
}

}  // namespace grapevine
