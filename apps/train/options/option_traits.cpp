#include "apps/train/options/option_traits.hpp"

#include <algorithm>
#include <type_traits>

#include "messages/check.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Groups of --help-all.
constexpr char kData[] = "Data and loss";
constexpr char kOptimizer[] = "Optimizer";
constexpr char kProcesses[] = "Processes and nodes";
constexpr char kDevice[] = "Device";
constexpr char kRecords[] = "Checkpoints and records";
constexpr char kStragglers[] = "Stragglers";

// Traits that go together.
constexpr unsigned kOfNodes =
    OptionTraits::stays_here | OptionTraits::not_in_job_file | OptionTraits::not_simulated;
constexpr unsigned kRefused = OptionTraits::not_simulated | OptionTraits::refused_in_simulation;
constexpr unsigned kChanges = OptionTraits::identity | OptionTraits::may_change_on_resume;
constexpr unsigned kChangesUnlessDefault =
    OptionTraits::identity_unless_default | OptionTraits::may_change_on_resume;

const OptionTraits* find_traits(const std::string& name) {
  const std::vector<OptionTraits>& table = option_traits();
  const auto row = std::find_if(table.begin(), table.end(),
                                [&](const OptionTraits& option) { return name == option.name; });
  return row == table.end() ? nullptr : &*row;
}

const TrainOptions& defaults() {
  static const TrainOptions options;
  return options;
}

// Calls `call` with the member of the option, where it has one.
template <class F>
void visit_member(const OptionTraits& option, const F& call) {
  std::visit(
      [&](auto member) {
        if constexpr (!std::is_same_v<decltype(member), std::monostate>) call(member);
      },
      option.member);
}

std::string member_text(const std::string& value) { return value; }
std::string member_text(bool value) { return value ? "true" : "false"; }
std::string member_text(std::int32_t value) { return std::to_string(value); }
std::string member_text(std::int64_t value) { return std::to_string(value); }
std::string member_text(double value) { return number_text(value); }
std::string member_text(const std::vector<std::string>& values) {
  GRAPEVINE_CHECK(values.size() == 1, "an option with several values has no text");
  return values.front();
}

}  // namespace

const std::vector<OptionTraits>& option_traits() {
  using O = TrainOptions;
  using T = OptionTraits;
  static const std::vector<OptionTraits> table = {
      {"help", nullptr, {}, T::stays_here | T::not_in_job_file},
      {"help-all", nullptr, {}, T::stays_here | T::not_in_job_file},
      {"job", nullptr, &O::job_file, T::stays_here | T::not_in_job_file},
      {"algorithm", nullptr, &O::algorithm, T::chosen | T::live},
      {"set", nullptr, &O::set, T::stays_here | T::not_in_job_file},
      {"workers", nullptr, &O::workers, T::chosen | T::identity},
      {"transport", nullptr, &O::transport, T::chosen | kRefused},
      {"network-interface", kProcesses, &O::network_interface,
       T::not_in_job_file | T::not_simulated},
      {"tls", kProcesses, &O::tls, T::stays_here | kRefused},
      {"trust-fabric", kProcesses, &O::trust_fabric, T::not_simulated},
      {"join-timeout", kProcesses, &O::join_timeout_s, T::not_in_job_file | T::not_simulated},
      {"join", kProcesses, &O::join, T::not_in_job_file | kRefused},
      {"cluster", nullptr, &O::cluster, kOfNodes | T::refused_in_simulation},
      {"processes", kProcesses, &O::processes, kOfNodes | T::refused_in_simulation},
      {"on-failure", kProcesses, &O::on_failure,
       kOfNodes | T::needs_cluster | T::refused_in_simulation},
      {"restarts", kProcesses, &O::restarts, kOfNodes | T::needs_cluster},
      {"secret-file", kProcesses, &O::secret_file, kOfNodes},
      {"model", nullptr, &O::model, T::identity},
      {"data", nullptr, &O::data, T::identity},
      {"augment", kData, &O::augment, kChangesUnlessDefault},
      {"skip-damaged", kData, &O::skip_damaged, 0},
      {"loss", kData, &O::loss, kChangesUnlessDefault},
      {"label-smoothing", kData, &O::label_smoothing, kChangesUnlessDefault},
      {"epochs", nullptr, &O::epochs, 0},
      {"steps", nullptr, &O::steps, 0},
      {"batch-size", nullptr, &O::batch_size, T::chosen | kChanges},
      {"accumulate", kOptimizer, &O::accumulate, kChangesUnlessDefault},
      {"lr", nullptr, &O::lr, kChanges | T::live},
      {"lr-per-256", kOptimizer, &O::lr_per_256, kChanges},
      {"momentum", nullptr, &O::momentum, T::identity},
      {"nesterov", kOptimizer, &O::nesterov, kChanges},
      {"weight-decay", kOptimizer, &O::weight_decay, kChanges | T::live},
      {"no-decay", kOptimizer, &O::no_decay, kChangesUnlessDefault},
      {"optimizer", nullptr, &O::optimizer, T::identity},
      {"lr-schedule", kOptimizer, &O::lr_schedule, kChanges},
      {"schedule", kOptimizer, &O::schedule, 0},
      {"warmup-epochs", kOptimizer, &O::warmup_epochs, kChanges},
      {"warmup-steps", kOptimizer, &O::warmup_steps, kChangesUnlessDefault},
      {"warmup-from", kOptimizer, &O::warmup_from, kChangesUnlessDefault},
      {"seed", nullptr, &O::seed, T::identity},
      {"delay", kStragglers, &O::delay, 0},
      {"device", nullptr, &O::device, T::chosen},
      {"peers", kDevice, &O::peers, 0},
      {"pinned-models", kDevice, &O::pinned_models, 0},
      {"bind-threads", kDevice, &O::bind_threads, T::not_simulated},
      {"devices-per-worker", kDevice, &O::devices_per_worker, T::identity_unless_default},
      {"processes-per-worker", kDevice, &O::processes_per_worker,
       T::identity_unless_default | kRefused},
      {"precision", kDevice, &O::precision, kChangesUnlessDefault},
      {"channels-last", kDevice, &O::channels_last, kChangesUnlessDefault},
      {"cudnn-benchmark", kDevice, &O::cudnn_benchmark, 0},
      {"cuda-graphs", kDevice, &O::cuda_graphs, 0},
      {"threads", kDevice, &O::threads, T::chosen},
      {"checkpoint-every", nullptr, &O::checkpoint_every, 0},
      {"checkpoint-keep", kRecords, &O::checkpoint_keep, 0},
      {"early-stop", kRecords, &O::early_stop, 0},
      {"validate", nullptr, &O::validate, 0},
      {"requeue-command", kRecords, &O::requeue_command, T::not_in_job_file | kRefused},
      {"resume", nullptr, &O::resume, T::not_in_job_file | kRefused},
      {"init", kRecords, &O::init, 0},
      {"out", nullptr, &O::out, T::stays_here | T::not_in_job_file},
      {"overwrite", nullptr, &O::overwrite, T::not_in_job_file},
      {"trace", kRecords, &O::trace, 0},
      {"trace-limit", kRecords, &O::trace_limit, 0},
      {"trace-sample", kRecords, &O::trace_sample, 0},
      {"metrics-port", nullptr, &O::metrics_port, T::not_in_job_file | kRefused},
      {"control", kRecords, &O::control, T::not_in_job_file | kRefused},
      {"tensorboard", kRecords, &O::tensorboard, kRefused},
      {"log-every", kRecords, &O::log_every, 0},
      {"timeout", kProcesses, &O::timeout_s, 0},
      {"stall-abort", kProcesses, &O::stall_abort_s, 0},
      {"lost-after", kProcesses, &O::lost_after_s, 0},
      {"min-ranks", kProcesses, &O::min_ranks, 0},
      {"max-ranks", kProcesses, &O::max_ranks, kRefused},
      {"json", nullptr, &O::json, T::not_in_job_file},
      {"clock-start", nullptr, &O::clock_start, T::not_in_job_file},
  };
  return table;
}

bool option_has(const std::string& name, OptionTraits::Trait trait) {
  const OptionTraits* option = find_traits(name);
  return option != nullptr && option->has(trait);
}

const OptionTraits& traits_of(const std::string& name) {
  const OptionTraits* option = find_traits(name);
  GRAPEVINE_CHECK(option != nullptr, "no option of train: " + name);
  return *option;
}

std::vector<std::string> options_with(OptionTraits::Trait trait) {
  std::vector<std::string> names;
  for (const OptionTraits& option : option_traits())
    if (option.has(trait)) names.emplace_back(option.name);
  return names;
}

bool is_default(const TrainOptions& options, const OptionTraits& option) {
  bool same = true;
  visit_member(option, [&](auto member) { same = options.*member == defaults().*member; });
  return same;
}

void set_default(TrainOptions& options, const OptionTraits& option) {
  visit_member(option, [&](auto member) { options.*member = defaults().*member; });
}

std::string value_text(const TrainOptions& options, const OptionTraits& option) {
  std::string text;
  visit_member(option, [&](auto member) { text = member_text(options.*member); });
  return text;
}

}  // namespace grapevine
