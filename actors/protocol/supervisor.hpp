// The messages to the Supervisor; its interface is in run.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/double_bits.hpp"
#include "actors/protocol/models.hpp"
#include "actors/protocol/packed_lists.hpp"
#include "actors/record/file_mark.hpp"
#include "actors/record/ledger.hpp"
#include "actors/record/rank_figures.hpp"
#include "algorithms/state_dict.hpp"
#include "gpu/compute.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// This rank has the common model of all members of the view.
struct ModelShared {
  std::int64_t view = 0;
  Rank rank = 0;
};
// The time for SettingsChecked is over.
struct SettingsTimeOver {
  std::int64_t number = 0;
};

// A step is done. Times in seconds; NaN: not measured.
struct StepReport {
  Rank rank = 0;
  Step step = 0;               // the step just finished, from 0
  double epoch = 0;            // in which it began, by this rank's own steps
  double epochs_done = 0;      // by the clock of the algorithm, after it
  double time_s = 0;           // of training, also before the checkpoint of a resumed run
  double batch_time_s = 0;     // since this rank's last step
  double exchange_time_s = 0;  // of it, waiting for other ranks
  double data_time_s = 0;      // of it, the worker waiting for its batch
  double loss = 0, top1 = 0, top5 = 0, lr = 0;
  double staleness = 0;  // mean over the updates applied in this step
  std::int64_t samples = 0;
  bool logged = true;      // false: not a row of metrics.csv
  std::int64_t view = 0;   // of the rank's role; and
  std::int64_t taken = 0;  // the batches that the rank has taken in it, that of this step included
};
// This rank has taken its last step.
struct RankFinished {
  Rank rank = 0;
};
// The state of one rank in cut `id`, with the messages that were on their way to it.
struct RankSnapshot {
  std::int64_t id = 0;
  Rank rank = 0;
  Step step = 0;
  StateDict state;
  std::optional<FileMark> file = {};  // in place of the state: it is stored
};
// The same of a rank of another process: its state is in the folder of the shards.
struct StateStored {
  std::int64_t id = 0;
  Rank rank = 0;
  Step step = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};
// The state of one rank in cut `id` cannot be stored.
struct SnapshotRefused {
  std::int64_t id = 0;
  Rank rank = 0;
  std::string reason;  // names the rank
};
// In RankReport::measures: StepMeter::gpu_busy(), where it is known.
inline constexpr char kGpuBusy[] = "gpu_busy";
struct RankReport {
  Rank rank = 0;
  Step step = 0;
  double w = 1;
  FrozenTensor z;        // [d], of a rank of process 0; and
  FrozenTensor buffers;  // [b] or empty
  ModelOffer offer;      // of a rank of another process: its model is fetched
  Ledger ledger;
  std::vector<double> step_seconds;  // of its steps, or a sample of them: see StepTimes
  StateDict measures;                // of its role, and kGpuBusy
};
// Also to the Supervisor: RankFigures (actors/record/rank_figures.hpp), at most once a second while
// the rank trains, with its last step and before its RankReport with a model. Between processes
// they take at most 64 KiB in a run of 4,096 ranks: those of more than 2,560 ranks are rounded down
// by less than 1/2^38 of their range.

// A rank cannot continue.
struct RankFailed {
  Error error;  // names the rank
};
// The transport has lost `peer`, as `reporter` sees it: a broken link, or the end of a process.
struct LinkLost {
  Rank reporter = 0;
  Rank peer = 0;
  std::string reason;
};
// All of one epoch's models, averaged and evaluated. Also to the CheckpointWriter.
struct EpochEvaluated {
  Epoch epoch = 0;
  Evaluation evaluation;
  std::string error;
};
struct CheckpointWritten {
  std::int64_t id = 0;
  std::string path;
  std::string error;
};
struct StopRequested {};
struct CheckpointRequested {};
// A process of the run has closed its trace and is about to end.
struct ProcessClosed {
  std::int32_t process = 0;
};
struct Watchdog {};
struct CollectAgain {};
struct AskTrafficAgain {};
// The time to ask a process again whether it lives.
struct AskAgain {
  std::int32_t process = 0;
};
// The time to compare the clock of a process with this one's; `left`: more times in this burst.
struct CompareClocks {
  std::int32_t process = 0;
  int left = 0;
  std::int64_t incarnation = 0;  // of the process: another one is compared by itself
};
// A validation has finished a batch, or a checkpoint the file of a rank.
struct Progress {};

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LinkLost& m) {
  return f(caf::meta::type_name("grapevine::LinkLost"), m.reporter, m.peer, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelShared& m) {
  return f(caf::meta::type_name("grapevine::ModelShared"), m.view, m.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFinished& m) {
  return f(caf::meta::type_name("grapevine::RankFinished"), m.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFailed& m) {
  return f(caf::meta::type_name("grapevine::RankFailed"), m.error);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StopRequested&) {
  return f(caf::meta::type_name("grapevine::StopRequested"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointRequested&) {
  return f(caf::meta::type_name("grapevine::CheckpointRequested"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ProcessClosed& m) {
  return f(caf::meta::type_name("grapevine::Farewell"), m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StateStored& m) {
  return f(caf::meta::type_name("grapevine::StateStored"), m.id, m.rank, m.step, m.bytes, m.crc32);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SnapshotRefused& m) {
  return f(caf::meta::type_name("grapevine::SnapshotRefused"), m.id, m.rank, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankReport& m) {
  DoubleBits w(m.w);
  DoubleListBits seconds(m.step_seconds);
  return f(caf::meta::type_name("grapevine::RankReport"), m.rank, m.step, m.offer, m.ledger,
           seconds.bits, m.measures, w.bits, caf::meta::load_callback([&w, &seconds] {
             seconds.restore();
             return w.restore();
           }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFigures& m) {
  constexpr std::size_t kMostBytes = std::size_t{20} << 10;
  static_assert(kMostPacked <= 8 * kMostBytes, "a bit for each rank");
  PackedLists of_ranks([&m](ListArchive& a) {
    return a.within(m.waited_ns, kMostBytes) && a.within(m.sent_bytes, kMostBytes);
  });
  return f(caf::meta::type_name("grapevine::RankFigures"), m.rank, m.view, m.ledger, of_ranks.bytes,
           caf::meta::load_callback([&of_ranks] { return of_ranks.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StepReport& m) {
  DoubleBits figures(m.epoch, m.epochs_done, m.time_s, m.batch_time_s, m.exchange_time_s,
                     m.data_time_s, m.loss, m.top1, m.top5, m.lr, m.staleness);
  return f(caf::meta::type_name("grapevine::StepReport"), m.rank, m.step, m.samples, m.logged,
           m.view, m.taken, figures.bits,
           caf::meta::load_callback([&figures] { return figures.restore(); }));
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CompareClocks)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochEvaluated)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CheckpointWritten)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SettingsTimeOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Watchdog)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CollectAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskTrafficAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankSnapshot)
