#include "apps/train/train_resume.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "actors/record/checkpoints/checkpoint_writer.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/wiring/any_level.hpp"
#include "algorithms/wiring/longer_run.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/train/live/job_parts.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/zoo/models.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

// Of a TorchScript file; nothing for a built-in model.
std::optional<std::string> model_crc32(const std::string& name_or_file) {
  const std::vector<std::string> builtin = model_names();
  if (std::find(builtin.begin(), builtin.end(), name_or_file) != builtin.end()) return std::nullopt;
  std::ifstream file(name_or_file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty()) return std::nullopt;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  return std::to_string(::crc32_z(0, data, bytes.size()));
}

// 0 where there is none.
std::int64_t identity_number(const JobIdentity& identity, const char* key) {
  const auto found = identity.find(key);
  return found == identity.end() ? 0 : number_in<std::int64_t>(found->second).value_or(0);
}

// Whether every server had seen all of its `clients` leave.
bool servers_had_ended(const Checkpoint& checkpoint, std::size_t clients) {
  return std::all_of(checkpoint.ranks.begin() + static_cast<std::ptrdiff_t>(clients),
                     checkpoint.ranks.end(), [](const StateDict& server) {
                       const auto finished = server.integer("role.finished");
                       return finished && *finished == 1;
                     });
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

bool messages_in_flight(const Checkpoint& checkpoint) {
  return std::any_of(checkpoint.ranks.begin(), checkpoint.ranks.end(), [](const StateDict& rank) {
    return !rank.under("in_flight").entries().empty();
  });
}

// Steps of each rank that trains, as far as the end of the run is concerned: where
// nodes go at their own pace, the mean that each of their heads knew of.
std::vector<Step> progress_of(const Checkpoint& checkpoint, const SharedParts& parts,
                              std::int32_t workers) {
  std::vector<Step> steps = checkpoint.steps();
  steps.resize(static_cast<std::size_t>(workers));
  const RoleType& role = *parts.plan.role;
  // A rank may have taken its last steps without their being in the common model.
  const std::vector<Step> reported = checkpoint.reported();
  for (std::size_t rank = 0; !role.counts_own_steps && rank < steps.size(); ++rank)
    steps[rank] = std::max(steps[rank], reported[rank]);
  if (role.plans_each_rank) return steps;
  const std::vector<double> epochs = checkpoint.epochs();
  std::vector<Step> heads;
  for (std::int32_t rank = 0; rank < workers; rank += parts.plan.hierarchy)
    heads.push_back(
        whole_epochs(epochs[static_cast<std::size_t>(rank)] * parts.horizon.steps_per_epoch));
  return heads;
}

// Whether another length of the run moves exchanges that lie behind, or changes their graphs.
bool length_moves_exchanges(const SharedParts& all) {
  return any_level(all, [](const SharedParts& parts) {
    const LocalSteps& local = parts.plan.local.steps;
    return (local.alpha > 0 && parts.lr.follows_the_end()) ||
           (local.changes() && parts.graph != nullptr &&
            parts.plan.graph.peers.values().size() > 1);
  });
}

// `steps`: of the job, in those of the checkpoint's ranks. Where members have changed, these are
// not the ones that --epochs gives: then the epochs, among those members, say it, too.
Error ends_before(const TrainJob& job, Step most, Step steps,
                  const std::optional<SavedView>& view) {
  const std::string name = "--resume " + job.options.resume + ": ";
  const std::string advice = ": give more --steps or --epochs";
  if (!view)
    return bad_input(name + "it is at step " + std::to_string(most) + ", the job ends at step " +
                     std::to_string(steps) + advice);
  const Horizon horizon = horizon_of(*view, job.run.parts->horizon, job.run.workers());
  if (steps <= 0)  // of other members, who have taken fewer of them than were planned
    return bad_input(fmt::format("{}it is at step {}, after {:.2f} epochs, behind --steps {}{}",
                                 name, most, horizon.epoch_of(most), job.options.steps, advice));
  return bad_input(fmt::format(
      "{}it is at step {}, after {:.2f} epochs, the job ends at step {}, after {:.2f}{}", name,
      most, horizon.epoch_of(most), steps, horizon.epoch_of(steps), advice));
}

// The length of a run in steps of the ranks of its checkpoint: where some were lost, the others
// take more of them to the same end.
Step steps_in(const std::optional<SavedView>& view, const Horizon& planned, std::int32_t workers) {
  return view ? horizon_of(*view, planned, workers).steps : planned.steps;
}

// The step at which the run of the checkpoint was to end, in steps of its ranks; nothing: it does
// not say. Errors (bad_input): a damaged checkpoint.
Expected<std::optional<Step>> planned_end_of(const TrainJob& job, const Checkpoint& checkpoint,
                                             const std::optional<SavedView>& view) {
  const auto saved = checkpoint.identity.find(kStepsKey);
  if (saved == checkpoint.identity.end()) return std::optional<Step>();
  const auto end = number_in<Step>(saved->second);
  if (!end)
    return bad_input(checkpoint.path + ": its steps are '" + saved->second +
                     "', which is no number: it is damaged, use an older one");
  const std::int32_t workers =
      std::max(1, static_cast<std::int32_t>(identity_number(checkpoint.identity, "workers")));
  Horizon before = job.run.parts->horizon;
  const double batches = before.steps_per_epoch * job.run.workers();
  before.steps_per_epoch = std::round(batches) / workers;
  before.steps = *end;
  // Where that end was rounded up, it is the one of the present epochs or of others.
  const bool rounded =
      before.by_samples && before.steps_per_epoch != std::floor(before.steps_per_epoch);
  const Step of_present = steps_of_epochs(job.options.epochs, job.start, before.steps_per_epoch);
  before.planned_epochs = rounded && *end == of_present ? job.options.epochs : 0;
  // Also where its length was one of --epochs, and that of this job is one of --steps.
  if (view && !before.by_samples) return std::optional<Step>(*end + view->later_end);
  return std::optional<Step>(steps_in(view, before, workers));
}

// Whether a run that was to end at step `end` may end at another one. `behind`: the progress of its
// ranks or nodes. REQUIRES: the checkpoint says its steps.
Expected<void> check_new_end(const TrainJob& job, const Checkpoint& checkpoint,
                             const std::optional<SavedView>& view, const std::vector<Step>& behind,
                             Step end) {
  const Plan& plan = job.run.parts->plan;
  const std::string name = "--resume " + job.options.resume + ": ";
  const std::string saved =
      view && view->by_samples ? std::to_string(end) : checkpoint.identity.at(kStepsKey);
  if (length_moves_exchanges(*job.run.parts))
    return bad_input(name +
                     "with wiring.qsr, or wiring.local_steps and peers by epoch, another length of "
                     "the run would move exchanges that lie behind: resume with --steps " +
                     saved);
  const auto begins = end_begins(*job.run.parts, end, view.has_value());
  if (!begins) return {};
  const auto at_end =
      std::count_if(behind.begin(), behind.end(), [&](Step step) { return step >= *begins; });
  const bool all_ended =
      std::all_of(behind.begin(), behind.end(), [&](Step step) { return step >= end; }) &&
      servers_had_ended(checkpoint, static_cast<std::size_t>(job.run.workers())) &&
      !messages_in_flight(checkpoint);
  // Roles outside a level count periods, and the last one was shorter.
  const bool ended_amid_a_period =
      all_ended && plan.role->parts_inside && !job.run.parts->exchanges.on_schedule(end);
  if (ended_amid_a_period)
    return bad_input(name + "the run ended at step " + std::to_string(end) +
                     ", amid a period of its outermost level, and cannot be made longer: begin "
                     "with --steps that its local_steps divide");
  if (at_end == 0 || all_ended) return {};
  return bad_input(name + "the run was about to end (" + std::to_string(at_end) + " of " +
                   std::to_string(behind.size()) +
                   (plan.role->plans_each_rank ? " ranks" : " nodes") +
                   "): first resume with --steps " + saved + ", then continue from there");
}

// A checkpoint in which only some ranks have reached the planned end can continue to that
// end, not beyond; nor can a new end be where some ranks are already, amid an exchange that is no
// last one.
Expected<void> check_end(const TrainJob& job, const Checkpoint& checkpoint) {
  const auto view = checkpoint.view();
  if (!view) return view.error();
  const RoleType& role = *job.run.parts->plan.role;
  const Step steps = steps_in(*view, job.run.parts->horizon, job.run.workers());
  const std::vector<Step> behind = progress_of(checkpoint, *job.run.parts, job.run.workers());
  const auto [done, most] = std::minmax_element(behind.begin(), behind.end());
  const Error too_short = ends_before(job, *most, steps, *view);
  if ((role.plans_each_rank && *done > steps) || (!role.allows_ranks_past_the_end && *most > steps))
    return too_short;
  const auto end = planned_end_of(job, checkpoint, *view);
  if (!end) return end.error();
  if (!*end || **end == steps) return {};
  if (role.plans_each_rank && steps < **end && *most >= steps) return too_short;
  return check_new_end(job, checkpoint, *view, behind, **end);
}

}  // namespace

JobIdentity with_resolved_wiring(JobIdentity identity) {
  const std::string prefix = "wiring.";
  Wiring wiring;
  for (const auto& [key, value] : identity)
    if (key.rfind(prefix, 0) == 0)
      if (auto set = wiring.set(key.substr(prefix.size()), value); !set) return identity;
  const auto resolved = resolve_keys(wiring);
  if (!resolved) return identity;  // of another version: compared as it is
  for (const ResolvedKey& key : resolved->keys)
    if (!key.value.empty()) identity[prefix + key.key] = key.value;
  return identity;
}

JobIdentity identity_of(const TrainOptions& o) {
  JobIdentity identity;
  for (const OptionTraits& option : option_traits()) {
    const bool stated = option.has(OptionTraits::identity_unless_default) && !is_default(o, option);
    if (option.has(OptionTraits::identity) || stated) identity[option.name] = value_text(o, option);
  }
  identity["data"] = o.data.substr(0, o.data.find(':'));  // files may have moved
  return identity;
}

JobIdentity identity_of(const TrainJob& job) {
  const TrainOptions& o = job.options;
  JobIdentity identity = identity_of(o);
  const DataInfo data = job.data ? job.data->info() : DataInfo{};
  identity["training-samples"] = std::to_string(data.train_size);
  identity["classes"] = std::to_string(data.classes);
  identity["sample-shape"] = shape_text(data.sample_shape);
  identity["parameters"] = std::to_string(job.parameters);
  if (const auto crc = model_crc32(o.model); crc) identity["model-crc32"] = *crc;
  for (const auto& [key, value] : job.wiring.keys()) identity["wiring." + key] = value;
  // Those of defaults, too: a later version of the program may have others.
  return with_resolved_wiring(std::move(identity));
}

JobIdentity saved_identity(const JobIdentity& stated) {
  JobIdentity whole = with_resolved_wiring(stated);
  const std::string prefix = "wiring.";
  for (auto& [name, value] : whole)
    if (name.rfind(prefix, 0) == 0 && stated.count(name) == 0 &&
        level_key(name.substr(prefix.size())).key == "all_reduce")
      value = "ring";
  return whole;
}

// Of one worker; 0 where the checkpoint does not say.
static std::int64_t samples_of_step(const JobIdentity& identity) {
  return identity_number(identity, "batch-size") *
         std::max<std::int64_t>(1, identity_number(identity, "accumulate"));
}

// A wiring that does not use the momentum keeps it for those that follow; its job file has none.
static void keep_momentum(TrainJob& job, const JobIdentity& saved) {
  const auto plan = resolve(job.wiring);
  const auto before = saved.find("momentum");
  if (!plan || plan->role->uses_momentum(*plan) || before == saved.end()) return;
  if (job.options.momentum != 0)
    job.options.momentum = std::strtod(before->second.c_str(), nullptr);
}

Expected<void> read_resume(TrainJob& job) {
  if (!job.options.clock_start.empty()) {
    const auto start = parse_clock_start(job.options.clock_start);
    if (!start) return start.error();
    job.start = *start;
  }
  if (job.options.resume.empty()) return {};
  auto checkpoint = read_checkpoint(job.options.resume);
  if (!checkpoint) return checkpoint.error();
  keep_momentum(job, checkpoint->identity);
  job.start = horizon_start_in(checkpoint->identity);
  if (job.start.ranks == 0) job.start.ranks = identity_number(checkpoint->identity, "workers");
  if (job.start.ranks == job.options.workers) job.start.ranks = 0;
  const std::int64_t before = samples_of_step(checkpoint->identity);
  const auto workers =
      std::min(checkpoint->ranks.size(),
               static_cast<std::size_t>(std::max<std::int64_t>(0, job.options.workers)));
  if (before > 0 && workers > 0 && before != step_samples(job.options)) {
    const std::vector<Step> steps = checkpoint->steps();
    const auto slowest =
        std::min_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(workers));
    job.start.step = *slowest;
    job.start.epoch = checkpoint->epochs()[static_cast<std::size_t>(slowest - steps.begin())];
  }
  job.saved_steps = checkpoint->reported();
  job.run.resume = *std::move(checkpoint);
  return {};
}

// The ranks that a checkpoint has continue, as many as there are workers now; others join them.
static Expected<void> change_workers(TrainJob& job, AllowedChanges& changes) {
  std::string& before = changes.saved["workers"];
  const std::string now = job.run.identity["workers"];
  if (before == now) return {};
  if (!changes_ranks(job.run.parts->plan))
    return bad_input("--resume " + job.options.resume + ": workers was " + before + ", now it is " +
                     now +
                     ": beside servers, in nodes and in levels their number cannot change: give "
                     "the same options, or begin a new run with its model: --init " +
                     job.options.resume + " --out DIR");
  const auto view = job.run.resume->view();
  if (!view) return view.error();
  const bool rounds_lie_behind = job.start.step > 0 && !view->has_value();
  if (rounds_lie_behind && job.run.parts->graph &&
      job.run.parts->plan.graph.peers.values().size() > 1)
    return bad_input("--resume " + job.options.resume + ": workers was " + before + ", now it is " +
                     now +
                     ": with wiring.peers by epoch their number cannot change after the batch size "
                     "has: give the same options, or begin a new run with its model: --init " +
                     job.options.resume + " --out DIR");
  changes.lines.push_back("workers " + now + " instead of " + before);
  before = now;
  return job.run.resume->change_ranks(job.run.ranks, job.start.step, job.start.epoch);
}

// The ranks of a checkpoint stand at different steps between two exchanges: moved, an exchange may
// lie between them, behind some and before others.
static Expected<void> check_exchanges_stay(const TrainJob& job, const AllowedChanges& changes) {
  const SharedParts& parts = *job.run.parts;
  const bool by_rate =
      any_level(parts, [](const SharedParts& level) { return level.plan.local.steps.alpha > 0; });
  const bool moves =
      any_level(parts, [](const SharedParts& level) { return level.plan.local.steps.changes(); });
  const bool batches = changes.batch_size && moves;
  if (!batches && !(changes.rate && by_rate)) return {};
  return bad_input("--resume " + job.options.resume + ": with wiring." +
                   (by_rate ? "qsr" : "local_steps by epoch") + ", another " +
                   (batches ? "batch size" : "learning rate") +
                   " would move exchanges between steps that the ranks have taken: give the same "
                   "options, or begin a new run with its model: --init " +
                   job.options.resume + " --out DIR");
}

Step last_step(const TrainJob& job) {
  const Horizon& planned = job.run.parts->horizon;
  if (!job.run.resume) return planned.steps;
  const auto view = job.run.resume->view();
  if (!view || !*view) return planned.steps;
  const std::int32_t workers = job.run.workers();
  if (!planned.by_samples) return horizon_of(**view, planned, workers).steps;
  const std::vector<Step> steps = job.run.resume->steps();
  const auto kept = std::min(steps.size(), static_cast<std::size_t>(workers));
  const auto most =
      std::max_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(kept));
  const double epoch = job.run.resume->epochs()[static_cast<std::size_t>(most - steps.begin())];
  const double left = std::max(0.0, planned.epoch_of(planned.steps) - epoch);
  const double each = planned.steps_per_epoch * workers / job.run.beginning_workers();
  return *most + static_cast<Step>(std::ceil(left * each - 1e-9));
}

// Earlier programs accepted more peers per round than there are other ranks, and took all of them.
// The number that make_graph() asks for in their place is the same wiring.
static std::string with_most_peers(const std::string& saved, std::int64_t most) {
  std::string text;
  std::istringstream entries(saved);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t begin = entry.find(':') + 1;  // npos + 1 is 0
    const auto peers = number_in<std::int64_t>(entry.substr(begin));
    if (peers && *peers > most) entry.replace(begin, std::string::npos, std::to_string(most));
    text += (text.empty() ? "" : ",") + entry;
  }
  return text;
}

static void allow_most_peers(const TrainJob& job, AllowedChanges& changes) {
  const auto saved = changes.saved.find("wiring.peers");
  const auto now = job.run.identity.find("wiring.peers");
  const auto nodes = count_nodes(job.run.parts->plan, job.run.workers());
  if (saved == changes.saved.end() || now == job.run.identity.end() || !nodes) return;
  const std::int64_t most = std::max(2, *nodes - 1);
  if (saved->second != now->second && with_most_peers(saved->second, most) == now->second)
    saved->second = now->second;
}

Expected<void> check_resume(TrainJob& job) {
  put_horizon_start(job.start, job.run.identity);
  if (!job.run.resume) return {};
  Checkpoint* checkpoint = &*job.run.resume;
  const std::string& resume = job.options.resume;
  AllowedChanges changes = allow_changes(saved_identity(checkpoint->identity), job.run.identity);
  changes.saved.erase(kNextChange);  // for add_schedule()
  if (changes.batch_size && !job.run.parts->plan.role->plans_each_rank)
    return bad_input("--resume " + resume +
                     ": ranks at their own pace count their steps together, so the batch size "
                     "cannot change: give the same --batch-size and --accumulate, or begin a new "
                     "run with its model: --init " +
                     resume + " --out DIR");
  if (auto kept = check_exchanges_stay(job, changes); !kept) return kept;
  put_horizon_start(job.start, changes.saved);
  if (auto changed = change_workers(job, changes); !changed) return changed;
  const auto view = checkpoint->view();
  if (!view) return view.error();
  if (changes.batch_size && (view->has_value() || !checkpoint->lost.empty()))
    return bad_input("--resume " + resume +
                     ": the batch size cannot change together with the number of workers, nor "
                     "where ranks were lost: give the same --batch-size and --accumulate, or begin "
                     "a new run with its model: --init " +
                     resume + " --out DIR");
  allow_most_peers(job, changes);
  if (auto same = check_same_job(changes.saved, job.run.identity, resume); !same) return same;
  if (checkpoint->ranks.size() != static_cast<std::size_t>(job.run.ranks))
    return bad_input(checkpoint->path + ": holds " + std::to_string(checkpoint->ranks.size()) +
                     " ranks, the job has " + std::to_string(job.run.ranks) +
                     ": the checkpoint is damaged, use an older one");
  if (auto fits = check_end(job, *checkpoint); !fits) return fits;
  const std::vector<Step> steps = checkpoint->steps();
  const std::vector<double> epochs = checkpoint->epochs();
  job.continues = fmt::format("continues {} at step {}, epoch {:.2f}{}{}", resume, steps.front(),
                              epochs.front(), changes.lines.empty() ? "" : ", with ",
                              fmt::join(changes.lines, ", "));
  return {};
}

}  // namespace grapevine
