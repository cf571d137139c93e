#include "apps/train/options/option_values.hpp"

#include <string>

#include "actors/record/checkpoints/checkpoint_keeper.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/train/train_place.hpp"
#include "apps/train/train_trace.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxDevicesPerWorker = 64;
constexpr std::int64_t kMaxProcessesPerWorker = 64;
constexpr std::int64_t kMostPinnedModels = 1000;
constexpr std::int64_t kMostAccumulated = 1'000'000;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;  // of a worker's step
constexpr double kMostTimeout = 1e6;                          // seconds
constexpr double kMostJoinTimeout = 1e5;                      // seconds

Expected<void> check_training_ranges(const TrainOptions& o) {
  return first_error(
      {o.workers == kWorkersAsUsual ? Expected<void>() : check_least("--workers", o.workers, 1),
       check_least("--batch-size", o.batch_size, 1),
       check_range("--pinned-models", o.pinned_models, 0, kMostPinnedModels),
       check_range("--devices-per-worker", o.devices_per_worker, 1, kMaxDevicesPerWorker),
       check_range("--processes-per-worker", o.processes_per_worker, 1, kMaxProcessesPerWorker),
       check_range("--accumulate", o.accumulate, 1, kMostAccumulated),
       check_least("--warmup-steps", o.warmup_steps, 0), check_above_zero("--epochs", o.epochs),
       o.steps == 0 ? Expected<void>() : check_range("--steps", o.steps, 1, kMaxSteps),
       check_least("--seed", o.seed, 0)});
}

Expected<void> check_run_ranges(const TrainOptions& o) {
  return first_error(
      {check_least("--checkpoint-every", o.checkpoint_every, 0),
       check_range("--threads", o.threads, 0, kMaxThreads),
       check_least("--log-every", o.log_every, 1),
       check_least("--min-ranks", o.min_ranks, 0,
                   ", 0: more than half of those that begin the run"),
       check_range("--max-ranks", o.max_ranks, 0, kMaxWorkers, ", 0: as many as begin the run"),
       check_above_zero("--timeout", o.timeout_s, kMostTimeout, " (seconds)"),
       check_range("--stall-abort", o.stall_abort_s, 0, kMostTimeout, " seconds, 0: never"),
       o.lost_after_s == 0 ? Expected<void>()
                           : check_range("--lost-after", o.lost_after_s, 1, kMostTimeout,
                                         " seconds, or 0: after --timeout"),
       check_least("--early-stop", o.early_stop, 0),
       check_above_zero("--join-timeout", o.join_timeout_s, kMostJoinTimeout, " (seconds)")});
}

// REQUIRES: the ranges are right.
Expected<void> check_training_fits(const TrainOptions& o) {
  if (o.batch_size > kMostSamples / o.accumulate)
    return bad_input("--batch-size " + std::to_string(o.batch_size) +
                     ": too large, use a smaller one");
  if (o.batch_size % o.devices_per_worker != 0)
    return bad_input("--devices-per-worker " + std::to_string(o.devices_per_worker) +
                     ": they share the worker's batch evenly, which --batch-size " +
                     std::to_string(o.batch_size) + " does not allow: make it a multiple");
  if (o.batch_size % o.processes_per_worker != 0)
    return bad_input("--processes-per-worker " + std::to_string(o.processes_per_worker) +
                     ": they share the worker's batch evenly, which --batch-size " +
                     std::to_string(o.batch_size) + " does not allow: make it a multiple");
  if (o.warmup_steps > 0 && o.warmup_epochs > 0)
    return bad_input("--warmup-steps and --warmup-epochs: give one of them");
  // A run that continues may have had one.
  if (o.warmup_from > 0 && o.warmup_steps == 0 && o.warmup_epochs == 0 && o.resume.empty())
    return bad_input("--warmup-from " + number_text(o.warmup_from) +
                     ": there is no warm-up: give --warmup-epochs or --warmup-steps");
  if (o.nesterov && o.optimizer != "sgd")
    return bad_input("--nesterov does not fit --optimizer " + o.optimizer + ": it belongs to sgd");
  return {};
}

Expected<void> check_run_fits(const TrainOptions& o) {
  if (o.validate != "epoch" && o.validate != "end")
    return unknown_name("--validate", o.validate, {"epoch", "end"});
  if (auto kept = parse_kept_checkpoints(o.checkpoint_keep); !kept) return kept.error();
  if (o.early_stop > 0 && o.validate != "epoch")
    return bad_input("--early-stop " + std::to_string(o.early_stop) +
                     ": needs validations beside training: use --validate epoch");
  if (!o.metrics_port.empty())
    if (auto address = parse_named_address("--metrics-port", o.metrics_port); !address)
      return address.error();
  return check_trace_options(o);
}

}  // namespace

Expected<void> check_option_values(const TrainOptions& options) {
  if (auto checked = check_training_ranges(options); !checked) return checked;
  if (auto checked = check_run_ranges(options); !checked) return checked;
  if (auto checked = check_training_fits(options); !checked) return checked;
  return check_run_fits(options);
}

}  // namespace grapevine
