// Goodput: the samples that count over the samples possible at the best rate observed.
#pragma once
#include <cstdint>
#include <map>

#include "actors/record/ledger.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// The one definition, for summary.json and for the metrics of a running job:
//   goodput = samples * (applied / produced) / (workers * best * seconds)
// `samples`: of the steps that all workers reported; applied / produced: contributions, from the
// ledgers; `best`: the highest rate of one worker, samples/s over kWindow consecutive steps, its
// waits included; `seconds`: from the start of this run to the last step of the slowest worker.
// Waits that others have not, pauses, slow ranks, lost ranks and lost contributions lower it; what
// slows every step of every rank by as much does not. Not thread-safe.
class Goodput {
 public:
  static constexpr int kWindow = 20;  // steps; while no worker has so many, all that it has

  // A step of a worker: its samples, and the time since the worker's last one or its start. Times
  // that are not finite or negative are left out, with their samples.
  void add(Rank rank, std::int64_t samples, double seconds);
  // 0 to 1; NaN where nothing is known yet. `ledger`: of all ranks; `workers`: ranks that train,
  // lost ones included, vacant places not.
  double ratio(const Ledger& ledger, std::int64_t workers) const;

 private:
  struct Window {
    std::int64_t samples = 0;
    double seconds = 0;

    double rate() const { return seconds > 0 ? static_cast<double>(samples) / seconds : 0; }
  };
  struct Worker {
    Window current;
    int steps = 0;       // in the current window
    double seconds = 0;  // of all steps
  };
  double best_rate() const;

  std::map<Rank, Worker> workers_;
  double best_rate_ = 0;  // of complete windows
  double seconds_ = 0;    // of the worker with the most
  std::int64_t samples_ = 0;
};

}  // namespace grapevine
