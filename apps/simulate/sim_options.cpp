#include "apps/simulate/sim_options.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "apps/console/help_format.hpp"
#include "apps/console/verb_options.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Options of `train` for processes and programs beside the run.
const std::pair<const char*, std::string TrainOptions::*> kNotSimulated[] = {
    {"--requeue-command", &TrainOptions::requeue_command},
    {"--metrics-port", &TrainOptions::metrics_port},
    {"--tls", &TrainOptions::tls},
    {"--join", &TrainOptions::join},
    {"--control", &TrainOptions::control},
    {"--on-failure", &TrainOptions::on_failure}};

// Options that are refused, and those that concern them, are in no help.
void hide_what_is_not_simulated(CLI::App& app) {
  for (const auto& [name, value] : kNotSimulated) app.get_option(name)->group("");
  for (const char* name :
       {"--cluster", "--processes", "--restarts", "--secret-file", "--transport", "--resume",
        "--max-ranks", "--tensorboard", "--network-interface", "--trust-fabric", "--join-timeout"})
    app.get_option(name)->group("");
}

}  // namespace

void declare_sim_options(CLI::App& app, SimOptions& options) {
  declare_train_options(app, options.train);
  add_option(app, "maths", options.maths,
             "gradients of the model (full), of a quadratic of its size (quadratic), or only the "
             "bytes of its messages (none)");
  add_option(app, "parameters", options.parameters,
             "size of the model, without --model; not with --maths full; 0: that of --model")
      ->default_str("0");
  add_option(app, "network", options.network,
             "alpha=SECONDS,beta=SECONDS_PER_BYTE[,jitter=SECONDS][,loss=PROBABILITY][,node=RANKS,"
             "node-alpha=,node-beta=][,rack=NODES,rack-alpha=,rack-beta=][,control=SECONDS]");
  add_option(app, "compute", options.compute,
             "virtual time of a gradient: SECONDS, lognormal=MU:SIGMA, normal=MEAN:DEVIATION, "
             "uniform=A..B or exponential=MEAN; --delay comes on top");
  add_option(
      app, "fail", options.fail,
      "faults at virtual times: crash=R@T, restart=R@T, join=R@T (of the last ranks, which do not "
      "begin the run), pause=R@T+D, partition=R1-R2@T+D, "
      "slow=R1-R2xF@T+D, random=N; skew=R:D: its clock is ahead in the trace");
  add_option(
      app, "from-trace", options.from_trace,
      "a run's folder: its times of gradients, its network and its size, where other options "
      "do not say otherwise");
  add_option(app, "deadline", options.deadline_s,
             "virtual seconds after which a run that has not ended has failed; 0: none");
  add_option(app, "seeds", options.seeds, "A..B: one run for each seed, with all checks");
  add_switch(app, "minimize", options.minimize,
             "shrink the faults of a run that fails to those that are needed");
  add_option(app, "jobs", options.jobs, "processes of --seeds; 0: one for each core");
  add_switch(app, "twice", options.twice, "with --seeds: run each twice and compare the hashes");
  hide_what_is_not_simulated(app);
}

Expected<void> read_trace_option(const CLI::App& app, SimOptions& options, Console& console) {
  if (options.from_trace.empty()) return {};
  auto profile = read_profile(options.from_trace, console);
  if (!profile) return profile.error();
  const auto given = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  TrainOptions& train = options.train;
  options.own_compute = given("--compute");
  options.own_network = given("--network");
  if (!given("--maths")) options.maths = "none";
  const bool same_model = !given("--model") && !given("--parameters") && options.maths != "full";
  if (same_model) options.parameters = profile->parameters;
  if (!given("--workers")) train.workers = profile->workers;
  if (!given("--batch-size")) train.batch_size = profile->batch_size;
  if (!given("--steps") && !given("--epochs")) train.steps = profile->steps;
  // For job.toml, beside from-trace: what the profile gives is not stated, so that it counts again.
  train.changed["maths"] = options.maths;
  train.changed["parameters"] = options.parameters > 0 ? std::to_string(options.parameters) : "";
  if (!options.own_network) train.changed["network"] = "";
  if (!options.own_compute) train.changed["compute"] = "";
  options.profile = std::make_shared<const RunProfile>(*std::move(profile));
  return {};
}

namespace {

Error not_simulated(const std::string& name) {
  return bad_input(name + " does not go with simulate: leave it out");
}

}  // namespace

void leave_out_variables(const CLI::App& app, SimOptions& options) {
  const auto is_variable = [&app](const char* name) {
    return from_environment(*app.get_option(name));
  };
  TrainOptions& train = options.train;
  if (is_variable("--jobs") && options.seeds.empty()) options.jobs = 0;
  if (is_variable("--tensorboard")) train.tensorboard = false;
  if (is_variable("--max-ranks")) train.max_ranks = 0;
  for (const auto& [name, value] : kNotSimulated)
    if (is_variable(name)) (train.*value).clear();
}

Expected<void> check_sim_options(const SimOptions& o) {
  const TrainOptions& t = o.train;
  if (o.maths != "full" && o.maths != "quadratic" && o.maths != "none")
    return unknown_name("--maths", o.maths, {"full", "quadratic", "none"});
  if (o.parameters < 0 || o.parameters > std::int64_t{1} << 40)
    return bad_input("--parameters " + std::to_string(o.parameters) + ": expected 1..2^40");
  if (o.parameters > 0 && o.maths == "full")
    return bad_input("--parameters " + std::to_string(o.parameters) +
                     " does not go with --maths full, whose model has a size: use --maths "
                     "quadratic or none");
  if (!std::isfinite(o.deadline_s) || o.deadline_s < 0 || o.deadline_s > 1e9)
    return bad_input("--deadline " + number_text(o.deadline_s) + ": expected seconds, 0 or more");
  if (o.jobs < 0 || o.jobs > 1024)
    return bad_input("--jobs " + std::to_string(o.jobs) + ": expected 0..1024");
  if (!t.cluster.empty() || t.processes != 0)
    return bad_input("--cluster does not go with simulate: a simulated run is one process");
  if (!t.transport.empty() && t.transport != "inproc")
    return bad_input("--transport " + t.transport +
                     " does not go with simulate, whose transport is --network: leave it out");
  if (!t.resume.empty())
    return bad_input(
        "--resume does not go with simulate: a simulated run begins at its first step");
  for (const auto& [name, value] : kNotSimulated)
    if (!(t.*value).empty()) return not_simulated(name);
  if (t.max_ranks != 0)
    return bad_input(
        "--max-ranks does not go with simulate: --fail join=R@T says which ranks come");
  if (t.tensorboard) return not_simulated("--tensorboard");
  if (!t.init.empty() && o.maths != "full")
    return bad_input("--init does not go with --maths " + o.maths +
                     ", which has no model to begin from: use --maths full, or leave it out");
  if (o.jobs > 0 && o.seeds.empty())
    return bad_input("--jobs " + std::to_string(o.jobs) +
                     " is the number of processes of a campaign: give --seeds A..B as well");
  if (o.twice && o.seeds.empty() && !o.minimize)
    return bad_input("--twice is for campaigns: give --seeds A..B as well");
  return {};
}

}  // namespace grapevine
