#include "actors/record/tracer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace grapevine {

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
    write(skewed->second, encoded_);
  } else if (own_) {
    write(*own_, encoded_);
  }
  if (config_.budget) config_.budget->give_back(batch.records.size());
}

void TracerState::add(const ClockSample& sample) {
  encoded_.clear();
  append_clock(encoded_, sample);
  if (own_) write(*own_, encoded_, true);
}

void TracerState::add(const SettingsChange& change) {
  encoded_.clear();
  append_change(encoded_, change);
  if (own_) write(*own_, encoded_, true);
}

void TracerState::pulse() {
  encoded_.clear();
  append_pulse(encoded_, now_ns());
  const std::uint64_t left_out = config_.budget ? config_.budget->dropped() : 0;
  if (left_out > left_out_)
    append_left_out(encoded_, left_out - std::exchange(left_out_, left_out));
  if (own_) write(*own_, encoded_);
  self_->delayed_send(TracerActor{self_}, Duration(kPulseIntervalNs), TracePulse{});
}

TraceClosed TracerState::close() {
  if (own_) close(*own_);
  for (auto& [rank, output] : skewed_) close(output);
  own_.reset();
  skewed_.clear();
  return {hash_, records_, error_, config_.budget ? config_.budget->dropped() : 0};
}

void TracerState::close(Output& output) {
  if (!holds_back()) write(output, std::exchange(output.held_back, {}));
  if (output.held_back.empty()) note(output.file.close());
}

bool TracerState::holds_back() const { return other_run_there_ && !stepped_; }

void TracerState::write(Output& to, const std::string& frames, bool for_all_segments) {
  if (holds_back()) {
    to.held_back += frames;
    return;
  }
  if (!to.held_back.empty()) note(to.file.write(std::exchange(to.held_back, {})));
  note(for_all_segments ? to.file.write_for_all_segments(frames) : to.file.write(frames));
}

void TracerState::note(const Expected<void>& written) {
  if (!written && error_.empty()) error_ = written.error().message;
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
