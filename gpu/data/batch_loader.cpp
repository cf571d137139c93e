#include "gpu/data/batch_loader.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "gpu/torch_error.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

BatchLoader::BatchLoader(std::shared_ptr<const DataSet> data, Sampler sampler, Rank rank,
                         LoaderOptions options)
    : data_(std::move(data)), sampler_(sampler), options_(options) {
  deal_.ranks = static_cast<std::int32_t>(sampler_.ranks());
  deal_.position = rank;
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Expected<Batch> BatchLoader::next(Step step) {
  if (!reads_ahead()) return read(batch_of(step));
  std::unique_lock<std::mutex> lock(mutex_);
  // Started by the first call: a resumed run must not read the batches of step 0 first.
  window_ = step;
  slots_.erase(slots_.begin(), slots_.lower_bound(step));
  slots_.erase(slots_.lower_bound(step + std::max(1, options_.depth)), slots_.end());
  if (threads_.empty()) start_threads();
  work_.notify_all();
  const auto arrived = [&] {
    const auto found = slots_.find(step);
    return found != slots_.end() && found->second->has_value();
  };
  if (!ready_.wait_for(lock, options_.timeout, arrived))
    return Error{Errc::timeout, "the batch of step " + std::to_string(step) + " of data '" +
                                    data_->info().name + "' did not arrive within " +
                                    number_text(to_seconds(options_.timeout)) +
                                    " s: check the disk it is read from"};
  Expected<Batch> batch = std::move(**slots_[step]);
  slots_.erase(step);
  // The following step enters the window while the caller computes on this one.
  window_ = step + 1;
  work_.notify_all();
  return batch;
}

// Batches that are being read go to nobody.
bool BatchLoader::deal(const Deal& deal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (deal == deal_) return false;
  deal_ = deal;
  slots_.clear();
  return true;
}

bool BatchLoader::ready(Step step) {
  if (!reads_ahead()) return !data_->info().slow;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = slots_.find(step);
  return found != slots_.end() && found->second->has_value();
}

// REQUIRES: mutex_ is held, or nothing is read ahead.
std::int64_t BatchLoader::batch_of(Step step) const {
  return deal_.batch_of(step) + options_.shift * sampler_.ranks();
}

std::vector<std::int64_t> BatchLoader::indices(std::int64_t batch) const {
  const std::vector<std::int64_t> all = sampler_.samples_of(batch);
  const auto size = static_cast<std::int64_t>(all.size()) / options_.slices;
  const auto begin = all.begin() + options_.slice * size;
  return {begin, begin + size};
}

Expected<Batch> BatchLoader::read(std::int64_t batch) const {
  const std::uint64_t augment = options_.augment ? sampler_.augment_seed_of(batch) : 0;
  try {
    return data_->batch(Split::train, indices(batch), augment);
  } catch (const std::exception& e) {
    return Error{Errc::failed, "reading data '" + data_->info().name + "': " + one_line(e)};
  }
}

void BatchLoader::start_threads() {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { read_ahead(); });
}

void BatchLoader::read_ahead() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const std::optional<Step> step = wanted();
    if (!step) {
      work_.wait(lock);  // next() or the destructor wakes it
      continue;
    }
    const auto slot = std::make_shared<Slot>();
    slots_[*step] = slot;
    const std::int64_t dealt = batch_of(*step);
    lock.unlock();
    Expected<Batch> batch = read(dealt);
    lock.lock();
    *slot = std::move(batch);
    ready_.notify_all();
  }
}

std::optional<Step> BatchLoader::wanted() const {
  for (Step step = window_; step < window_ + std::max(1, options_.depth); ++step)
    if (slots_.count(step) == 0) return step;
  return std::nullopt;
}

}  // namespace grapevine
