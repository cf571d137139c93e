#include "actors/record/tracer.hpp"

#include <filesystem>

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
  file_.emplace(settings.folder, header, settings.limit);
}

void TracerState::add(const TraceBatch& batch) {
  if (config_.settings.watch) config_.settings.watch(batch.records);
  encoded_.clear();
  append_records(encoded_, batch.records);
  for (const TraceRecord& record : batch.records)
    stepped_ = stepped_ || record.kind == EventKind::step_done;
  hash_ = fnv1a(encoded_, hash_);
  records_ += batch.records.size();
  write(encoded_);
  if (config_.budget) config_.budget->give_back(batch.records.size());
}

void TracerState::add(const ClockSample& sample) {
  encoded_.clear();
  append_clock(encoded_, sample);
  write(encoded_, true);
}

void TracerState::pulse() {
  encoded_.clear();
  append_pulse(encoded_, now_ns());
  const std::uint64_t left_out = config_.budget ? config_.budget->dropped() : 0;
  if (left_out > left_out_)
    append_left_out(encoded_, left_out - std::exchange(left_out_, left_out));
  write(encoded_);
  self_->delayed_send(TracerActor{self_}, Duration(kPulseIntervalNs), TracePulse{});
}

TraceClosed TracerState::close() {
  if (!holds_back()) write(std::exchange(held_back_, {}));
  if (file_ && held_back_.empty()) note(file_->close());
  file_.reset();
  return {hash_, records_, error_, config_.budget ? config_.budget->dropped() : 0};
}

bool TracerState::holds_back() const { return other_run_there_ && !stepped_; }

void TracerState::write(const std::string& frames, bool for_all_segments) {
  if (!file_) return;
  if (holds_back()) {
    held_back_ += frames;
    return;
  }
  if (!held_back_.empty()) note(file_->write(std::exchange(held_back_, {})));
  note(for_all_segments ? file_->write_for_all_segments(frames) : file_->write(frames));
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
      [&state](TracePulse) { state.pulse(); },
      [self, &state](CloseTrace) { self->send(state.owner(), state.close()); },
  };
}

}  // namespace grapevine
