// BatchLoader: the batches of one rank, read ahead where reading is slow.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/data/sampler.hpp"
#include "messages/expected.hpp"
#include "messages/gradient.hpp"
#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

struct LoaderOptions {
  bool augment = false;
  int threads = 2;                         // that read ahead; 0 reads in next()
  int depth = 4;                           // steps read ahead, the asked one included
  Duration timeout = from_seconds(120.0);  // longest wait for one batch
  // Of every batch only slice `slice` of `slices` equal ones is read.
  std::int64_t slice = 0;
  std::int64_t slices = 1;
  // The samples of step s are those that the sampler has for step s + shift: of a run in which the
  // number of steps in an epoch has changed.
  Step shift = 0;
};

// What next(step) returns depends on the step alone, never on threads, timing or earlier calls.
// Batches of a DataInfo::slow data set are read ahead on own threads, at most `depth` of them;
// others are read in next(). Asking for the steps in order is fast; a jump (resume, repeated step)
// is right, and drops batches read ahead in vain.
//
// next() is for one thread. The destructor waits for the batches being read at that moment.
class BatchLoader {
 public:
  // REQUIRES: the sampler was made for data->info().train_size; slices divides its batch size.
  BatchLoader(std::shared_ptr<const DataSet> data, Sampler sampler, Rank rank,
              LoaderOptions options);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Errors: those of the data set, at the step whose batch they spoil; timeout after `timeout`.
  Expected<Batch> next(Step step);

  // From now on, steps have the batches of this deal. At first: those of the sampler's ranks. For
  // the thread of next(). False: it was so before.
  bool deal(const Deal& deal);

  // Whether next(step) would give it without waiting for another thread. Where nothing is read
  // ahead: whether reading is fast. For the thread of next().
  bool ready(Step step);

 private:
  // A batch that is being read (empty) or was read.
  using Slot = std::optional<Expected<Batch>>;

  bool reads_ahead() const { return data_->info().slow && options_.threads > 0; }
  std::int64_t batch_of(Step step) const;
  std::vector<std::int64_t> indices(std::int64_t batch) const;
  Expected<Batch> read(std::int64_t batch) const;
  void start_threads();
  void read_ahead();
  std::optional<Step> wanted() const;

  // Constant after construction.
  const std::shared_ptr<const DataSet> data_;
  const Sampler sampler_;
  const LoaderOptions options_;
  std::vector<std::thread> threads_;

  // Guarded by mutex_. A reader keeps its Slot alive when the window moves away from it.
  std::mutex mutex_;
  std::condition_variable work_;   // the window moved, or stop
  std::condition_variable ready_;  // a slot was filled
  Deal deal_;
  std::map<Step, std::shared_ptr<Slot>> slots_;
  Step window_ = 0;  // the slots of [window_, window_ + depth) are wanted
  bool stop_ = false;
};

}  // namespace grapevine
