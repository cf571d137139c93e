#include "apps/simulate/sim_options.hpp"

#include <string>
#include <utility>

#include "apps/console/verb_options.hpp"
#include "apps/train/options/option_traits.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

constexpr double kMostVirtualSeconds = 1e9;
constexpr std::int64_t kMostJobs = 1024;
constexpr std::int64_t kMostParameters = std::int64_t{1} << 40;

void hide_what_is_not_simulated(CLI::App& app) {
  for (const std::string& name : options_with(OptionTraits::not_simulated))
    app.get_option("--" + name)->group("");
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

Error not_simulated(const std::string& name, const TrainOptions& options) {
  const std::string start = "--" + name + " does not go with simulate";
  if (name == "cluster" || name == "processes")
    return bad_input("--cluster does not go with simulate: a simulated run is one process");
  if (name == "transport")
    return bad_input("--transport " + options.transport +
                     " does not go with simulate, whose transport is --network: leave it out");
  if (name == "resume") return bad_input(start + ": a simulated run begins at its first step");
  if (name == "max-ranks") return bad_input(start + ": --fail join=R@T says which ranks come");
  return bad_input(start + ": leave it out");
}

Expected<void> check_is_simulated(const TrainOptions& options) {
  for (const std::string& name : options_with(OptionTraits::refused_in_simulation)) {
    const bool as_simulated = name == "transport" && options.transport == "inproc";
    if (!as_simulated && !is_default(options, traits_of(name))) return not_simulated(name, options);
  }
  return {};
}

}  // namespace

void leave_out_unsuited(CLI::App& app, SimOptions& options) {
  const auto is_variable = [&app](const std::string& name) {
    return from_environment(*app.get_option(name));
  };
  if (is_variable("--jobs") && options.seeds.empty()) options.jobs = 0;
  // A cluster's profile means the folder of runs. Of a campaign, and of the command that repeats
  // one of its seeds, each would find the files of the one before.
  if (is_variable("--out") && (options.minimize || !options.seeds.empty()))
    options.train.out.clear();
  // A job file serves every command: what it says of files means nothing where none are written.
  const bool of_file = options.train.places.count("--out") > 0;
  if (of_file && options.minimize && options.seeds.empty()) options.train.out.clear();
  for (const std::string& name : options_with(OptionTraits::refused_in_simulation)) {
    if (!is_variable("--" + name)) continue;
    app.get_option("--" + name)->clear();  // job.toml and a campaign's commands do not state it
    set_default(options.train, traits_of(name));
  }
}

Expected<void> check_sim_options(const SimOptions& o) {
  const TrainOptions& t = o.train;
  if (o.maths != "full" && o.maths != "quadratic" && o.maths != "none")
    return unknown_name("--maths", o.maths, {"full", "quadratic", "none"});
  if (o.parameters != 0)
    if (auto checked = check_range("--parameters", o.parameters, 1, kMostParameters); !checked)
      return checked;
  if (o.parameters > 0 && o.maths == "full")
    return bad_input("--parameters " + std::to_string(o.parameters) +
                     " does not go with --maths full, whose model has a size: use --maths "
                     "quadratic or none");
  if (auto checked = first_error(
          {check_range("--deadline", o.deadline_s, 0, kMostVirtualSeconds, " seconds, 0: none"),
           check_range("--jobs", o.jobs, 0, kMostJobs)});
      !checked)
    return checked;
  if (auto simulated = check_is_simulated(t); !simulated) return simulated;
  if (!t.init.empty() && o.maths != "full")
    return bad_input("--init does not go with --maths " + o.maths +
                     ", which has no model to begin from: use --maths full, or leave it out");
  if (o.jobs > 0 && o.seeds.empty())
    return bad_input("--jobs " + std::to_string(o.jobs) +
                     " is the number of processes of a campaign: give --seeds A..B as well");
  if (o.twice && o.seeds.empty() && !o.minimize)
    return bad_input("--twice is for campaigns: give --seeds A..B as well");
  if (o.minimize && o.seeds.empty() && !t.out.empty())
    return bad_input("--out " + t.out +
                     " does not go with --minimize, which writes no files: leave it out, or give "
                     "--seeds A..B as well");
  return {};
}

}  // namespace grapevine
