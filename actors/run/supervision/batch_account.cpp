#include "actors/run/supervision/batch_account.hpp"

#include <algorithm>
#include <limits>

namespace grapevine {
namespace {

// Steps of the view in which that position has a batch below `end`.
std::int64_t steps_below(std::int64_t end, std::int64_t first, std::int64_t members,
                         std::int64_t position) {
  const std::int64_t behind = end - first - position;
  return behind <= 0 ? 0 : (behind + members - 1) / members;
}

// Adds the runs of one list, divided at the ends of epochs.
void name_run(const BatchRun& run, const BatchEpochs& epochs,
              std::vector<BatchTally::Named>& named) {
  BatchRun rest = run;
  while (rest.count > 0 && named.size() < BatchTally::kMostNamed) {
    const std::int64_t number = epochs.number_of(rest.first);
    const std::int64_t room = (epochs.per_epoch - number + rest.stride - 1) / rest.stride;
    const std::int64_t count = std::min(rest.count, room);
    named.push_back({epochs.epoch_of(rest.first), {number, rest.stride, count}});
    rest.first += count * rest.stride;
    rest.count -= count;
  }
}

// Ascending neighbours at equal distances are one run.
std::vector<BatchRun> runs_of(const std::vector<std::int64_t>& batches) {
  std::vector<BatchRun> runs;
  for (const std::int64_t batch : batches) {
    BatchRun* const last = runs.empty() ? nullptr : &runs.back();
    const std::int64_t step =
        last == nullptr ? 0 : batch - last->first - (last->count - 1) * last->stride;
    if (step > 0 && (last->count == 1 || step == last->stride)) {
      last->stride = step;
      ++last->count;
    } else {
      runs.push_back({batch, 1, 1});
    }
  }
  return runs;
}

// Takes the batches below `end` off a run, and counts them; returns their number.
std::int64_t count_below(std::int64_t end, BatchRun& run, std::map<std::int64_t, int>& times) {
  const std::int64_t before = run.count;
  for (; run.count > 0 && run.first < end; run.first += run.stride, --run.count) ++times[run.first];
  return before - run.count;
}

}  // namespace

BatchAccount::BatchAccount(std::optional<std::int64_t> planned, std::vector<BatchRun> ahead,
                           std::int64_t first)
    : planned_(planned) {
  for (BatchRun& run : ahead) {
    const std::int64_t before = std::min(run.count, steps_below(first, run.first, run.stride, 0));
    run.first += before * run.stride;
    run.count -= before;
    add_ahead(run);
  }
}

std::int64_t BatchAccount::end_view(std::int64_t first, const std::vector<Share>& shares) {
  const auto members = static_cast<std::int64_t>(shares.size());
  std::int64_t steps = 0;
  for (const Share& share : shares)
    if (share.remains) steps = std::max(steps, share.taken);
  const std::int64_t end = first + steps * members;
  const auto not_left_out = count_ahead_below(first, shares, end);
  for (std::int64_t position = 0; position < members; ++position) {
    const auto but = not_left_out.find(position);
    leave_out(first, members, position, shares[static_cast<std::size_t>(position)].taken, steps,
              but == not_left_out.end() ? std::vector<std::int64_t>() : but->second);
  }
  add_ahead(first, shares, steps);
  return end;
}

void BatchAccount::end_training(std::int64_t first, const std::vector<Share>& shares) {
  const auto members = static_cast<std::int64_t>(shares.size());
  std::int64_t steps = 0;
  for (const Share& share : shares) steps = std::max(steps, share.taken);
  const std::int64_t end = planned_.value_or(first + steps * members);
  const auto not_left_out =
      count_ahead_below(first, shares, std::numeric_limits<std::int64_t>::max());
  for (std::int64_t position = 0; position < members; ++position) {
    const auto but = not_left_out.find(position);
    leave_out(first, members, position, shares[static_cast<std::size_t>(position)].taken,
              steps_below(end, first, members, position),
              but == not_left_out.end() ? std::vector<std::int64_t>() : but->second);
  }
}

// The batches of that position in the steps [from_step, to_step) of the view, as far as training
// goes, without those of the steps `but`, ascending.
void BatchAccount::leave_out(std::int64_t first, std::int64_t members, std::int64_t position,
                             std::int64_t from_step, std::int64_t to_step,
                             const std::vector<std::int64_t>& but) {
  if (planned_) to_step = std::min(to_step, steps_below(*planned_, first, members, position));
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin < end)
      left_out_.push_back({first + begin * members + position, members, end - begin});
  };
  std::int64_t begin = from_step;
  for (const std::int64_t step : but) {
    if (step < begin || step >= to_step) continue;
    add(begin, step);
    begin = step + 1;
  }
  add(begin, to_step);
}

// Of the batches that lost ranks had taken before they were dealt anew, those below `end` are dealt
// no more. Returns, by position, the steps in which no member of this view has taken such a batch.
std::map<std::int64_t, std::vector<std::int64_t>> BatchAccount::count_ahead_below(
    std::int64_t first, const std::vector<Share>& shares, std::int64_t end) {
  const auto members = static_cast<std::int64_t>(shares.size());
  std::map<std::int64_t, std::vector<std::int64_t>> not_left_out;
  std::map<std::int64_t, int> taken_ahead;  // by how many lost ranks
  for (BatchRun& run : ahead_) ahead_count_ -= count_below(end, run, taken_ahead);
  const auto is_over = [](const BatchRun& run) { return run.count == 0; };
  ahead_.erase(std::remove_if(ahead_.begin(), ahead_.end(), is_over), ahead_.end());
  for (const auto& [batch, takers] : taken_ahead) {
    const std::int64_t position = (batch - first) % members, step = (batch - first) / members;
    const bool taken = step < shares[static_cast<std::size_t>(position)].taken;
    if (!taken) not_left_out[position].push_back(step);
    for (int once = taken ? 0 : 1; once < takers; ++once) again_.push_back(batch);
  }
  return not_left_out;
}

void BatchAccount::add_ahead(std::int64_t first, const std::vector<Share>& shares,
                             std::int64_t steps) {
  const auto members = static_cast<std::int64_t>(shares.size());
  for (std::int64_t position = 0; position < members; ++position) {
    const Share& share = shares[static_cast<std::size_t>(position)];
    if (!share.remains)
      add_ahead({first + steps * members + position, members, share.taken - steps});
  }
}

// As much of it as training goes, and as there is room for.
void BatchAccount::add_ahead(BatchRun run) {
  if (planned_) run.count = std::min(run.count, steps_below(*planned_, run.first, run.stride, 0));
  const std::int64_t room =
      BatchesOfLost::kMostAhead - static_cast<std::int64_t>(again_.size()) - ahead_count_;
  const std::int64_t beyond =
      std::max<std::int64_t>(0, run.count - std::max<std::int64_t>(0, room));
  again_beyond_ += beyond;
  run.count -= beyond;
  if (run.count <= 0) return;
  ahead_.push_back(run);
  ahead_count_ += run.count;
}

BatchTally BatchAccount::tally(const BatchEpochs& epochs) const {
  BatchTally tally;
  for (const BatchRun& run : left_out_) {
    tally.left_out += run.count;
    name_run(run, epochs, tally.left_out_runs);
  }
  tally.again = static_cast<std::int64_t>(again_.size()) + again_beyond_;
  for (const BatchRun& run : runs_of(again_)) name_run(run, epochs, tally.again_runs);
  return tally;
}

}  // namespace grapevine
