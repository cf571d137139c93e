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
    OptionTraits::kStaysHere | OptionTraits::kNotInJobFile | OptionTraits::kNotSimulated;
constexpr unsigned kRefused = OptionTraits::kNotSimulated | OptionTraits::kRefusedInSimulation;
constexpr unsigned kChanges = OptionTraits::kIdentity | OptionTraits::kMayChangeOnResume;
constexpr unsigned kChangesUnlessDefault =
    OptionTraits::kIdentityUnlessDefault | OptionTraits::kMayChangeOnResume;

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
      {"help", nullptr, {}, T::kStaysHere | T::kNotInJobFile},
      {"help-all", nullptr, {}, T::kStaysHere | T::kNotInJobFile},
      {"job", nullptr, &O::job_file, T::kStaysHere | T::kNotInJobFile},
      {"algorithm", nullptr, &O::algorithm, T::kChosen | T::kLive},
      {"set", nullptr, &O::set, T::kStaysHere | T::kNotInJobFile},
      {"workers", nullptr, &O::workers, T::kChosen | T::kIdentity},
      {"transport", nullptr, &O::transport, T::kChosen | kRefused},
      {"network-interface", kProcesses, &O::network_interface, T::kNotInJobFile | T::kNotSimulated},
      {"tls", kProcesses, &O::tls, T::kStaysHere | kRefused},
      {"trust-fabric", kProcesses, &O::trust_fabric, T::kNotSimulated},
      {"join-timeout", kProcesses, &O::join_timeout_s, T::kNotInJobFile | T::kNotSimulated},
      {"join", kProcesses, &O::join, T::kNotInJobFile | kRefused},
      {"cluster", nullptr, &O::cluster, kOfNodes | T::kRefusedInSimulation},
      {"processes", kProcesses, &O::processes, kOfNodes | T::kRefusedInSimulation},
      {"on-failure", kProcesses, &O::on_failure,
       kOfNodes | T::kNeedsCluster | T::kRefusedInSimulation},
      {"restarts", kProcesses, &O::restarts, kOfNodes | T::kNeedsCluster},
      {"secret-file", kProcesses, &O::secret_file, kOfNodes},
      {"model", nullptr, &O::model, T::kIdentity},
      {"data", nullptr, &O::data, T::kIdentity},
      {"augment", kData, &O::augment, kChangesUnlessDefault},
      {"skip-damaged", kData, &O::skip_damaged, 0},
      {"loss", kData, &O::loss, kChangesUnlessDefault},
      {"label-smoothing", kData, &O::label_smoothing, kChangesUnlessDefault},
      {"epochs", nullptr, &O::epochs, 0},
      {"steps", nullptr, &O::steps, 0},
      {"batch-size", nullptr, &O::batch_size, T::kChosen | kChanges},
      {"accumulate", kOptimizer, &O::accumulate, kChangesUnlessDefault},
      {"lr", nullptr, &O::lr, kChanges | T::kLive},
      {"lr-per-256", kOptimizer, &O::lr_per_256, kChanges},
      {"momentum", nullptr, &O::momentum, T::kIdentity},
      {"nesterov", kOptimizer, &O::nesterov, kChanges},
      {"weight-decay", kOptimizer, &O::weight_decay, kChanges | T::kLive},
      {"no-decay", kOptimizer, &O::no_decay, kChangesUnlessDefault},
      {"optimizer", nullptr, &O::optimizer, T::kIdentity},
      {"lr-schedule", kOptimizer, &O::lr_schedule, kChanges},
      {"schedule", kOptimizer, &O::schedule, 0},
      {"warmup-epochs", kOptimizer, &O::warmup_epochs, kChanges},
      {"warmup-steps", kOptimizer, &O::warmup_steps, kChangesUnlessDefault},
      {"warmup-from", kOptimizer, &O::warmup_from, kChangesUnlessDefault},
      {"seed", nullptr, &O::seed, T::kIdentity},
      {"delay", kStragglers, &O::delay, 0},
      {"device", nullptr, &O::device, T::kChosen},
      {"peers", kDevice, &O::peers, 0},
      {"devices-per-worker", kDevice, &O::devices_per_worker, T::kIdentityUnlessDefault},
      {"precision", kDevice, &O::precision, kChangesUnlessDefault},
      {"channels-last", kDevice, &O::channels_last, kChangesUnlessDefault},
      {"cudnn-benchmark", kDevice, &O::cudnn_benchmark, 0},
      {"threads", kDevice, &O::threads, T::kChosen},
      {"checkpoint-every", nullptr, &O::checkpoint_every, 0},
      {"checkpoint-keep", kRecords, &O::checkpoint_keep, 0},
      {"early-stop", kRecords, &O::early_stop, 0},
      {"validate", nullptr, &O::validate, 0},
      {"requeue-command", kRecords, &O::requeue_command, T::kNotInJobFile | kRefused},
      {"resume", nullptr, &O::resume, T::kNotInJobFile | kRefused},
      {"init", kRecords, &O::init, 0},
      {"out", nullptr, &O::out, T::kStaysHere | T::kNotInJobFile},
      {"overwrite", nullptr, &O::overwrite, T::kNotInJobFile},
      {"trace", kRecords, &O::trace, 0},
      {"trace-limit", kRecords, &O::trace_limit, 0},
      {"trace-sample", kRecords, &O::trace_sample, 0},
      {"metrics-port", nullptr, &O::metrics_port, T::kNotInJobFile | kRefused},
      {"control", kRecords, &O::control, T::kNotInJobFile | kRefused},
      {"tensorboard", kRecords, &O::tensorboard, kRefused},
      {"log-every", kRecords, &O::log_every, 0},
      {"timeout", kProcesses, &O::timeout_s, 0},
      {"stall-abort", kProcesses, &O::stall_abort_s, 0},
      {"min-ranks", kProcesses, &O::min_ranks, 0},
      {"max-ranks", kProcesses, &O::max_ranks, kRefused},
      {"json", nullptr, &O::json, T::kNotInJobFile},
      {"clock-start", nullptr, &O::clock_start, T::kNotInJobFile},
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
