#include "apps/simulate/sim_job.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/collectives/exact_reduction.hpp"
#include "algorithms/wiring/any_level.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/simulate/compute_time.hpp"
#include "apps/train/train_computes.hpp"
#include "gpu/quadratic_compute.hpp"
#include "messages/random.hpp"
#include "messages/text/number_text.hpp"
#include "net/sim/network_model.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kUsualWorkers = 4;
constexpr std::int64_t kMostWorkers = 65536;
constexpr std::uint64_t kTraceRunStream = 0x7472616365;  // messages/random.hpp: one purpose each

// All ranks in this process, whatever a launcher has put into the environment.
Expected<void> place_here(TrainJob& job) {
  TrainOptions& o = job.options;
  if (o.workers == kWorkersAsUsual) o.workers = kUsualWorkers;
  if (auto checked = check_range("--workers", o.workers, 1, kMostWorkers); !checked) return checked;
  o.transport = "inproc";
  // One thread does everything: more of them would only change the order of sums.
  job.run.threads = 1;
  for (Rank rank = 0; rank < static_cast<Rank>(o.workers); ++rank) job.local_ranks.push_back(rank);
  for (const auto& [key, value] : job.wiring.keys())
    if (value == "node" && (key == "hierarchy" || level_key(key).key == kGroupRanksKey))
      return bad_input("wiring." + key +
                       " = 'node': a simulated run has no nodes of its own: "
                       "give the number");
  return {};
}

// Whether the messages of a rank are whole models, so that few parameters can stand for all.
bool sends_whole_models(const SharedParts& parts) {
  return parts.graph && parts.plan.hierarchy == 1 && !parts.plan.role->parts_inside;
}

// Keys that depend on the bytes of a vector do not go with parameters that stand for others.
Expected<void> check_sizes(const Wiring& wiring) {
  const std::string why =
      " does not go with --maths none, whose few parameters are of other sizes: ";
  for (const auto& [name, value] : wiring.keys()) {
    const std::string key = level_key(name).key;
    if (key == "bucket_bytes" && value != "0")
      return bad_input("wiring." + name + " = '" + value + "'" + why + "use --maths quadratic");
  }
  return {};
}

// The clock counts nanoseconds: that of a message, and of many that wait for each other, must fit.
Expected<void> check_message_time(const NetworkModel& model, const std::vector<Fault>& faults,
                                  double bytes) {
  constexpr double kLongest = 1e6;  // s
  double slow = 1;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::slow) slow = std::max(slow, fault.factor);
  double seconds = model.jitter;
  for (const LinkModel& link : {model.link, model.inside, model.uplink})
    seconds += slow * (link.alpha + link.beta * bytes);
  if (seconds <= kLongest) return {};
  return bad_input("--network " + network_text(model) + ": a message of this model takes " +
                   number_text(seconds) + " s" + (slow > 1 ? " on a slow link" : "") +
                   ": expected at most 1e6 s, give a smaller beta or alpha");
}

// How many parameters stand for `parameters` where only the bytes of messages count: enough for
// each slice, list and block of scales of a message to be proportional to the model.
std::int64_t stand_in_size(const TrainJob& job, std::int64_t parameters) {
  constexpr std::int64_t kLeast = 64, kOfSlice = 8, kBlocks = 4096, kOfList = 16;
  const SharedParts& parts = *job.run.parts;
  const bool whole = sends_whole_models(parts);
  std::int64_t size = whole ? kLeast : std::max(kLeast, kOfSlice * job.run.workers());
  const CompressionSettings& compression = parts.plan.compression;
  if (compression.enabled()) {
    size = std::max(size, kBlocks);
    const double density = compression.density.base();
    if (density > 0 && density < 1)
      size = std::max(size, static_cast<std::int64_t>(std::ceil(kOfList / density)));
  }
  // The choice of an all-reduce is that of the model: no stand-in for a long vector is short.
  const bool has_groups = parts.plan.hierarchy > 1 || parts.plan.role->parts_inside;
  const bool chooses = has_groups || any_level(parts, [](const SharedParts& level) {
                         return level.plan.compression.exact == ExactReduce::automatic;
                       });
  if (chooses || !job.options.schedule.empty())
    size = std::max(size, kMostShortBytes / std::int64_t{sizeof(float)} + 1);
  // Of slices, one for each rank: all as long.
  const std::int64_t of = whole ? 1 : job.run.workers();
  return std::min(parameters, (size + of - 1) / of * of);
}

Expected<std::shared_ptr<Compute>> quadratic(const TrainJob& job, std::int64_t dimension,
                                             Rank rank) {
  QuadraticConfig config;
  config.dimension = dimension;
  config.rank = rank;
  config.ranks = job.options.workers;
  config.batch_size = job.options.batch_size;
  config.seed = seed_of(job.options);
  config.heterogeneity = 1;
  auto made = QuadraticCompute::make(config);
  if (!made) return made.error();
  return std::shared_ptr<Compute>(*std::move(made));
}

Expected<void> make_quadratics(TrainJob& job, std::int64_t dimension) {
  for (const Rank rank : job.local_ranks) {
    auto compute = quadratic(job, dimension, rank);
    if (!compute) return compute.error();
    job.run.computes.push_back(*std::move(compute));
  }
  auto evaluator = quadratic(job, dimension, 0);
  if (!evaluator) return evaluator.error();
  job.evaluator = *std::move(evaluator);
  return {};
}

Expected<std::int64_t> count_parameters(const TrainJob& job) {
  auto model = job.model(seed_of(job.options));
  if (!model) return model.error();
  std::int64_t count = 0;
  for (const NamedTensor& named : (*model)->parameters()) count += named.tensor.numel();
  return count;
}

class Maker {
 public:
  Maker(const SimOptions& options, SimJob& made) : options_(options), made_(made) {}

  JobMaker hooks() {
    JobMaker maker;
    maker.place = place_here;
    if (!options_.writes) maker.folders = [](TrainJob&) { return Expected<void>(); };
    if (options_.parameters > 0) maker.data = [this](TrainJob& job) { return no_data(job); };
    maker.computes = [this](TrainJob& job) { return computes(job); };
    maker.transport = [this](TrainJob& job) { return network(job); };
    return maker;
  }

 private:
  Expected<void> no_data(const TrainJob& job) const {
    if (job.options.steps > 0) return {};
    return bad_input("--parameters " + std::to_string(options_.parameters) +
                     ": without a model and its data there are no epochs: give --steps");
  }

  Expected<void> computes(TrainJob& job) {
    if (options_.maths == "full") {
      job.own_threads = false;
      if (auto made = make_computes(job); !made) return made;
      made_.parameters = job.parameters;
      made_.real = true;
      return {};
    }
    if (job.run.parts->plan.compression.per_layer && !job.data)
      return bad_input(
          "wiring.per_layer = 'true' needs the layers of a model: leave out "
          "--parameters, or use --maths full");
    made_.parameters = options_.parameters;
    if (made_.parameters == 0) {
      const auto count = count_parameters(job);
      if (!count) return count.error();
      made_.parameters = *count;
    }
    job.parameters = made_.parameters;
    std::int64_t dimension = made_.parameters;
    if (options_.maths == "none") {
      if (job.run.parts->plan.compression.per_layer)
        return bad_input(
            "wiring.per_layer = 'true' does not go with --maths none, which has no "
            "layers: use --maths quadratic");
      if (auto fits = check_sizes(job.wiring); !fits) return fits;
      made_.stand_in = dimension = stand_in_size(job, made_.parameters);
    }
    if (auto made = make_quadratics(job, dimension); !made) return made;
    if (options_.maths == "quadratic" && job.options.validate == "epoch")
      job.run.evaluator = job.evaluator;
    return {};
  }

  Expected<void> network(TrainJob& job) {
    auto model = parse_network(options_.network);
    if (!model) return model.error();
    if (options_.profile && !options_.own_network) {
      *model = options_.profile->network();
      made_.network_note = options_.profile->network_note();
    }
    auto compute = parse_compute_time(options_.compute, seed_of(job.options));
    if (!compute) return compute.error();
    if (options_.profile && !options_.own_compute)
      compute = ComputeTime{options_.profile->compute_time(),
                            from_seconds(options_.profile->mean_gradient())};
    made_.network = network_text(*model);
    if (auto plan = plan_faults(job, *model, compute->mean); !plan) return plan;
    job.run.delay.set_compute(compute->of);
    for (const RankPause& pause : pauses_of(made_.faults)) job.run.delay.add(pause);
    job.run.deaths = deaths_of(made_.faults);
    job.run.returns = returns_of(made_.faults);
    job.run.trace.skews = skews_of(made_.faults);
    if (auto fits = check_loss(job, *model); !fits) return fits;
    // Markers go from every rank to every other: a million messages for a thousand ranks.
    if (options_.maths == "none") job.run.checkpoint_folder.clear();
    job.run.world = std::make_shared<VirtualWorld>();
    job.run.world->deadline = from_seconds(options_.deadline_s);
    job.run.world->control_delay = from_seconds(model->control);
    job.run.world->network =
        std::make_shared<SimTransport>(sim_config(job, *model), [] { return Timestamp{0}; });
    job.run.transport = job.run.world->network;
    return {};
  }

  // Whether the wiring allows that messages are lost, where the network loses some.
  static Expected<void> check_loss(const TrainJob& job, const NetworkModel& model) {
    if (model.loss <= 0) return {};
    const Plan& plan = job.run.parts->plan;
    const bool waits = any_level(*job.run.parts, [](const SharedParts& level) {
      return level.graph && level.plan.role->sent_weight(level.plan) != SentWeight::sums;
    });
    if (plan.role->sent_weight(plan) == SentWeight::sums && !waits) return {};
    return bad_input("--network loss=" + number_text(model.loss) +
                     ": this wiring waits for every message: only gossip with "
                     "wiring.running_sums = 'true' can lose some");
  }

  SimConfig sim_config(const TrainJob& job, const NetworkModel& model) const {
    SimConfig config;
    config.world_size = job.run.world_size();
    config.network = model;
    config.link_faults = link_faults_of(made_.faults);
    config.pauses = pauses_of(made_.faults);
    config.seed = seed_of(job.options);
    if (made_.stand_in > 0)
      config.model_scale =
          static_cast<double>(made_.parameters) / static_cast<double>(made_.stand_in);
    if (model.loss > 0)
      config.may_lose = [](const Envelope& message) {
        return std::holds_alternative<Share>(message.payload);
      };
    return config;
  }

  Expected<void> plan_faults(TrainJob& job, const NetworkModel& network, Duration compute) {
    FaultBounds bounds;
    bounds.ranks = job.run.ranks;
    bounds.workers = job.run.workers();
    const std::int32_t joins = std::min(count_joins(options_.fail), job.run.workers() - 1);
    job.run.initial_workers = joins > 0 ? job.run.workers() - joins : 0;
    bounds.crashes = most_crashes(job.run);
    bounds.restarts = (bounds.crashes > 0 || joins > 0) && changes_members(job.run.parts->plan);
    bounds.seed = seed_of(job.options);
    const double message = static_cast<double>(made_.parameters) * sizeof(float);
    const double step =
        to_seconds(compute) + 2 * (network.link.alpha + network.link.beta * message);
    const auto steps = static_cast<double>(job.run.parts->horizon.steps);
    bounds.expected = from_seconds(std::min(1e9, steps * step));
    made_.expected = bounds.expected;
    auto faults = parse_faults(options_.fail, bounds);
    if (!faults) return faults.error();
    made_.faults = *std::move(faults);
    if (auto initial = initial_workers_of(made_.faults, job.run.workers()); !initial)
      return initial.error();
    return check_message_time(network, made_.faults, message);
  }

  const SimOptions& options_;
  SimJob& made_;
};

}  // namespace

std::int32_t most_crashes(const RunConfig& run) {
  const Plan& plan = run.parts->plan;
  const bool alone = plan.servers > 0 && plan.hierarchy == 1 && plan.role->tolerates_lost_peer;
  if (!changes_members(plan) && !alone) return 0;
  const std::int32_t begin = run.beginning_workers();
  const std::int32_t least = run.min_workers > 0 ? run.min_workers : begin / 2 + 1;
  const std::int32_t crashes = std::max(0, begin - least);
  // One node keeps the rank that exchanges for it.
  return node_size(plan) > 1 ? std::min(crashes, run.workers() / plan.hierarchy - 1) : crashes;
}

Expected<SimJob> make_sim_job(const SimOptions& options) {
  if (auto checked = check_sim_options(options); !checked) return checked.error();
  SimJob made;
  Maker maker(options, made);
  auto job = make_train_job(options.train, maker.hooks());
  if (!job) return job.error();
  made.job = *std::move(job);
  // The number of the run depends on the seed alone, so that the trace has the same bytes each
  // time.
  made.job.run.trace.header.run = mix_seed(seed_of(options.train), kTraceRunStream);
  return made;
}

}  // namespace grapevine
