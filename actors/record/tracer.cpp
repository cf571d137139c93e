#include "actors/record/tracer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace grapevine {
namespace {

constexpr std::size_t kMostOwedBytes = 1 << 20;

}  // namespace

void TracerState::init(TracerActor::stateful_pointer<TracerState> self, TracerConfig config) {
  self_ = self;
  config_ = std::move(config);
  const TraceSettings& settings = config_.settings;
  if (settings.folder.empty()) return;
  std::error_code ignored;
  const TraceHeader& header = settings.header;
  other_run_there_ = std::filesystem::exists(
      settings.folder + "/" + trace_file_name(header.process, header.part, 0), ignored);
  TraceHeader own = header;
  own.processes += static_cast<std::int32_t>(settings.skews.size());
  const auto is_skewed = [&settings](Rank rank) { return settings.skews.count(rank) > 0; };
  own.ranks.erase(std::remove_if(own.ranks.begin(), own.ranks.end(), is_skewed), own.ranks.end());
  own_.emplace(Output{{settings.folder, own, settings.limit}});
  add_skewed(std::move(own));
}

// With one comparison of its clock for each, which is exact.
void TracerState::add_skewed(TraceHeader header) {
  const TraceSettings& settings = config_.settings;
  header.boot.clear();  // no clock is shared
  for (const auto& [rank, skew] : settings.skews) {
    ++header.process;
    header.ranks = {rank};
    skewed_.emplace(rank, Output{{settings.folder, header, settings.limit}, skew});
    add(ClockSample{header.process, 0, skew.count(), 0});
  }
}

void TracerState::add(const TraceBatch& batch) {
  if (config_.settings.watch) config_.settings.watch(batch.records);
  encoded_.clear();
  append_records(encoded_, batch.records);
  for (const TraceRecord& record : batch.records)
    stepped_ = stepped_ || record.kind == EventKind::step_done;
  hash_ = fnv1a(encoded_, hash_);
  records_ += batch.records.size();
  const auto skewed =
      batch.records.empty() ? skewed_.end() : skewed_.find(batch.records.front().rank);
  if (skewed != skewed_.end()) {
    std::vector<TraceRecord> shifted = batch.records;
    for (TraceRecord& record : shifted) record.time_ns += skewed->second.skew.count();
    encoded_.clear();
    append_records(encoded_, shifted);
    write(skewed->second, {encoded_, batch.records.size()});
  } else if (own_) {
    write(*own_, {encoded_, batch.records.size()});
  }
  if (config_.budget) config_.budget->give_back(batch.records.size());
}

void TracerState::add(const ClockSample& sample) {
  encoded_.clear();
  append_clock(encoded_, sample);
  write_repeated(sample);
}

void TracerState::add(const SettingsChange& change) {
  encoded_.clear();
  append_change(encoded_, change);
  write_repeated(change);
}

void TracerState::pulse() {
  encoded_.clear();
  const std::int64_t now = now_ns();
  append_pulse(encoded_, now);
  const std::uint64_t dropped = config_.budget ? config_.budget->dropped() : 0;
  const std::uint64_t left_out = dropped - std::exchange(left_out_, dropped);
  if (left_out > 0) {
    append_left_out(encoded_, left_out);
    append_pulse(encoded_, now);  // none is missing here
  }
  if (own_) write(*own_, {encoded_, left_out});
  self_->delayed_send(TracerActor{self_}, Duration(kPulseIntervalNs), TracePulse{});
}

TraceClosed TracerState::close() {
  if (own_) close(*own_);
  for (auto& [rank, output] : skewed_) close(output);
  own_.reset();
  skewed_.clear();
  if (refused_ > 0) error_ += "; " + std::to_string(refused_) + " records are missing";
  return {hash_, records_, error_, config_.budget ? config_.budget->dropped() : 0};
}

void TracerState::close(Output& output) {
  const std::string nothing;
  if (!holds_back()) write(output, {nothing});
  // A file without its end is not whole.
  if (!output.held_back.empty() || output.has_gap) return;
  if (auto closed = output.file.close(); !closed) note(closed.error());
}

bool TracerState::holds_back() const { return other_run_there_ && !stepped_; }

// What is in `encoded_`.
template <class Repeated>
void TracerState::write_repeated(const Repeated& what) {
  if (!own_) return;
  write(*own_, {encoded_, 0, true});
  own_->file.repeat(what);
}

void TracerState::write(Output& to, const Frames& frames) {
  if (holds_back()) {
    to.held_back += frames.bytes;
    return;
  }
  if (!to.held_back.empty()) {
    const std::string before = std::exchange(to.held_back, {});
    put(to, {before, 0, true});
  }
  put(to, frames);
}

// After something was refused, the file first tells of it.
void TracerState::put(Output& to, const Frames& frames) {
  std::string before;
  if (to.has_gap) append_left_out(before, to.refused);
  before += to.owed;
  const auto written = to.file.write(before.empty() ? frames.bytes : before + frames.bytes);
  if (!written) {
    note(written.error());
    return refuse(to, frames);
  }
  to.owed.clear();
  to.refused = 0;
  to.has_gap = false;
}

void TracerState::refuse(Output& to, const Frames& frames) {
  to.has_gap = true;
  to.refused += frames.records;
  refused_ += frames.records;
  if (frames.is_owed && to.owed.size() + frames.bytes.size() <= kMostOwedBytes)
    to.owed += frames.bytes;
}

// Whoever runs the job may make room before much is missing.
void TracerState::note(const Error& failure) {
  if (!error_.empty()) return;
  error_ = failure.message;
  self_->send(config_.owner, TraceRefused{error_});
}

std::int64_t TracerState::now_ns() const {
  const auto since_epoch = self_->clock().now().time_since_epoch();
  return std::chrono::duration_cast<Duration>(since_epoch).count() -
         config_.settings.header.zero_monotonic_ns;
}

TracerActor::behavior_type tracer(TracerActor::stateful_pointer<TracerState> self,
                                  TracerConfig config) {
  TracerState& state = self->state;
  const bool pulses = config.pulses;
  state.init(self, std::move(config));
  if (pulses) state.pulse();
  return {
      [&state](const TraceBatch& batch) { state.add(batch); },
      [&state](const ClockSample& sample) { state.add(sample); },
      [&state](const SettingsChange& change) { state.add(change); },
      [&state](TracePulse) { state.pulse(); },
      [self, &state](CloseTrace) { self->send(state.owner(), state.close()); },
  };
}

}  // namespace grapevine
