#include "apps/trace/report/slow_steps.hpp"

#include <algorithm>

#include "apps/trace/training_clock.hpp"
#include "messages/check.hpp"

namespace grapevine {
SlowSteps::SlowSteps(std::int32_t ranks, std::size_t keep)
    : keep_(keep), ranks_(static_cast<std::size_t>(std::max(ranks, 0))) {
  GRAPEVINE_CHECK(ranks > 0, "slow steps need a rank");
  for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i].lane.rank = static_cast<Rank>(i);
}

void SlowSteps::add(const TraceRecord& record) {
  if (record.rank < 0 || static_cast<std::size_t>(record.rank) >= ranks_.size()) return;
  OfRank& rank = ranks_[static_cast<std::size_t>(record.rank)];
  // The first record of a step may be the end of something that took its time.
  if (rank.first_ns < 0)
    rank.first_ns = std::max(rank.lane.begin_ns, record.time_ns - record.duration_ns);
  if (!rank.begun) rank.lane.begin_ns = rank.first_ns;
  rank.begun = true;
  rank.lane.end_ns = record.time_ns;
  switch (record.kind) {
    case EventKind::asked:
      rank.asked = record.step;
      break;
    case EventKind::produced:
      add_segment(rank, {StepSegment::Kind::compute, record.time_ns - record.duration_ns,
                         record.time_ns, -1});
      break;
    case EventKind::data_wait:
      add_segment(
          rank, {StepSegment::Kind::data, record.time_ns - record.duration_ns, record.time_ns, -1});
      break;
    case EventKind::wait_begin:
      if (!rank.waits) rank.wait_began_ns = record.time_ns;
      rank.waits = true;
      rank.waits_for = record.peer;
      break;
    case EventKind::wait_end:
      if (!rank.waits) break;
      rank.waits = false;
      add_segment(rank, {StepSegment::Kind::wait, rank.wait_began_ns, record.time_ns,
                         record.peer >= 0 ? record.peer : rank.waits_for});
      break;
    case EventKind::step_done:
      rank.lane.step = record.step;
      end_step(rank, record.time_ns);
      break;
    case EventKind::resumed:
      begin_again(rank, record.time_ns);
      break;
    case EventKind::view:  // a rank that is lost does nothing more, until it returns
      if (is_return(record)) {
        rank.waits = false;
        begin_again(rank, record.time_ns);
      } else if (record.peer >= 0 && static_cast<std::size_t>(record.peer) < ranks_.size())
        cut_off(ranks_[static_cast<std::size_t>(record.peer)], record.time_ns);
      break;
    default:
      break;
  }
}

// The time between a run and its resumption is in no step; a wait goes on from there.
void SlowSteps::begin_again(OfRank& rank, std::int64_t time_ns) {
  rank.lane.segments.clear();
  rank.lane.left_out = 0;
  rank.lane.begin_ns = rank.first_ns = rank.wait_began_ns = time_ns;
}

void SlowSteps::add_segment(OfRank& rank, StepSegment segment) {
  segment.begin_ns = std::max(segment.begin_ns, rank.lane.begin_ns);
  if (segment.end_ns <= segment.begin_ns) return;
  if (rank.lane.segments.size() < kMostSegments)
    rank.lane.segments.push_back(segment);
  else
    ++rank.lane.left_out;
}

void SlowSteps::end_step(OfRank& rank, std::int64_t time_ns) {
  StepLane& lane = rank.lane;
  lane.end_ns = time_ns;
  if (lane.step != rank.last_done + 1 && rank.last_done >= 0) lane.begin_ns = rank.first_ns;
  if (rank.waits) {  // the wait belongs to both steps
    add_segment(rank, {StepSegment::Kind::wait, rank.wait_began_ns, time_ns, rank.waits_for});
    rank.wait_began_ns = time_ns;
  }
  keep(lane);
  rank.last_done = lane.step;
  rank.first_ns = -1;
  const Rank number = lane.rank;
  lane = {};
  lane.rank = number;
  lane.begin_ns = lane.end_ns = time_ns;
}

void SlowSteps::keep(const StepLane& lane) {
  const auto slower = [](const StepLane& a, const StepLane& b) {
    return a.duration_ns() > b.duration_ns();
  };
  if (slowest_.size() == keep_ && (keep_ == 0 || !slower(lane, slowest_.back()))) return;
  if (slowest_.size() == keep_) slowest_.pop_back();
  slowest_.insert(std::upper_bound(slowest_.begin(), slowest_.end(), lane, slower), lane);
}

// Counts the step in which the records of a rank end, where something happened in it.
void SlowSteps::cut_off(OfRank& rank, std::int64_t time_ns) {
  if (!rank.begun || (!rank.waits && rank.lane.segments.empty())) return;
  if (rank.asked >= 0 && rank.asked <= rank.last_done) return;  // it has taken its last step
  rank.lane.finished = false;
  rank.lane.step = rank.last_done + 1;
  end_step(rank, std::max(rank.waits ? time_ns : rank.lane.end_ns, rank.lane.begin_ns));
  rank.waits = rank.begun = false;
}

void SlowSteps::finish(std::int64_t time_ns) {
  for (OfRank& rank : ranks_) cut_off(rank, time_ns);
}

}  // namespace grapevine
