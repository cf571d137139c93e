#include "messages/trace/merged_trace.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "messages/trace/wrapping.hpp"

namespace grapevine {

Expected<MergedTrace> MergedTrace::open(const std::string& run) {
  MergedTrace trace;
  std::error_code ignored;
  const std::filesystem::path inside = std::filesystem::path(run) / "trace";
  const std::string folder = std::filesystem::is_directory(inside, ignored) ? inside.string() : run;
  if (auto added = trace.add_files(folder); !added) return added.error();
  if (auto checked = trace.check_one_run(); !checked) return checked.error();
  trace.align_clocks();
  trace.index_ranks();
  trace.drop_undone();
  trace.collect_changes();
  trace.find_zero();
  trace.note_missing();
  trace.rewind();
  return trace;
}

void MergedTrace::rewind() {
  heap_.clear();
  now_ns_ = 0;
  current_ = -1;
  for (Cursor& cursor : cursors_) {
    cursor.held.clear();
    cursor.next_frame = 0;
    cursor.records.clear();
    cursor.at = 0;
    cursor.last_sent = 0;
    cursor.ended = false;
    cursor.sent_ahead.clear();
    push(cursor.rank);
  }
}

const TraceRecord* MergedTrace::next() {
  if (current_ >= 0) advance(std::exchange(current_, -1));
  while (!heap_.empty() || release_any()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Due due = heap_.back();
    heap_.pop_back();
    Cursor& cursor = cursor_of(due.rank);
    TraceRecord& record = cursor.records[cursor.at];
    if (is_held(record)) {
      cursor_of(record.peer).held.push_back(due.rank);
      continue;
    }
    record.time_ns = now_ns_ = due.time_ns;
    current_ = due.rank;
    return &record;
  }
  return nullptr;
}

void MergedTrace::advance(Rank rank) {
  Cursor& cursor = cursor_of(rank);
  const TraceRecord& record = cursor.record();
  const bool sent = record.kind == EventKind::sent;
  if (sent) cursor.last_sent = std::max(cursor.last_sent, record.sequence);
  ++cursor.at;
  push(rank);
  if (sent || cursor.ended) release(rank);
}

// The rank's next record, not before what was returned last.
void MergedTrace::push(Rank rank) {
  Cursor& cursor = cursor_of(rank);
  while (cursor.at >= cursor.records.size())
    if (!load(cursor)) {
      cursor.ended = true;
      return;
    }
  heap_.push_back({std::max(cursor.record().time_ns, now_ns_), rank});
  std::push_heap(heap_.begin(), heap_.end());
}

MergedTrace::Cursor& MergedTrace::cursor_of(Rank rank) {
  return cursors_[static_cast<std::size_t>(cursor_at_[static_cast<std::size_t>(rank)])];
}

bool MergedTrace::has_records(Rank rank) const {
  return rank >= 0 && rank < ranks() && cursor_at_[static_cast<std::size_t>(rank)] >= 0;
}

// The next frame of a rank that can be read; false: there is none.
bool MergedTrace::load(Cursor& cursor) {
  cursor.records.clear();
  cursor.at = 0;
  if (cursor.next_frame >= cursor.frames.size()) return false;
  const std::size_t number = cursor.next_frame++;
  cursor.sent_ahead.erase(number);
  if (read(cursor, number, cursor.records)) return true;
  cursor.next_frame = cursor.frames.size();
  return false;
}

// The records of a frame that count, by the common clock.
bool MergedTrace::read(Cursor& cursor, std::size_t number, std::vector<TraceRecord>& records) {
  const Frame& frame = cursor.frames[number];
  OpenFile& file = open_[frame.file];
  if (!file) file.reset(std::fopen(files_[frame.file].path.c_str(), "rb"));
  const auto gone = [&](const std::string& why) {
    note(name_in_trace(files_[frame.file].path) + ": " + why);
    records.clear();
    return false;
  };
  if (!file) return gone("it cannot be opened any more");
  if (auto read = read_frame(file.get(), frame.frame, body_); !read)
    return gone(read.error().message);
  if (auto decoded = decode_records(body_, records, ranks()); !decoded)
    return gone(decoded.error().message);
  if (cursor.undone_from[number] < records.size()) records.resize(cursor.undone_from[number]);
  for (TraceRecord& record : records)
    record.time_ns =
        wrapped_difference(clocks_[frame.file].to_coordinator(record.time_ns), zero_ns_);
  return true;
}

// Notes each text once, however often the trace is read.
void MergedTrace::note(const std::string& missing) {
  if (std::find(missing_.begin(), missing_.end(), missing) == missing_.end())
    missing_.push_back(missing);
}

// Whether the record of the sending is still to come.
bool MergedTrace::is_held(const TraceRecord& record) {
  if (record.kind != EventKind::received || !has_records(record.peer)) return false;
  Cursor& sender = cursor_of(record.peer);
  return !sender.ended && sender.last_sent < record.sequence &&
         is_sent_later(sender, record.sequence);
}

// Not every sending is recorded: those of other steps than the sampled ones are not, and those of
// files that --trace-limit has removed. A rank sends by increasing sequence.
bool MergedTrace::is_sent_later(Cursor& sender, std::uint64_t sequence) {
  for (std::size_t i = sender.at; i < sender.records.size(); ++i) {
    const TraceRecord& record = sender.records[i];
    if (record.kind == EventKind::sent && record.sequence >= sequence)
      return record.sequence == sequence;
  }
  for (std::size_t frame = sender.next_frame; frame < sender.frames.size(); ++frame) {
    const std::vector<std::uint64_t>& sent = sent_in(sender, frame);
    const auto found = std::lower_bound(sent.begin(), sent.end(), sequence);
    if (found != sent.end()) return *found == sequence;
  }
  return false;
}

const std::vector<std::uint64_t>& MergedTrace::sent_in(Cursor& sender, std::size_t frame) {
  const auto [entry, is_new] = sender.sent_ahead.try_emplace(frame);
  if (!is_new) return entry->second;
  std::vector<TraceRecord> records;
  if (read(sender, frame, records))
    for (const TraceRecord& record : records)
      if (record.kind == EventKind::sent) entry->second.push_back(record.sequence);
  return entry->second;
}

// The receipts whose sending has been returned.
void MergedTrace::release(Rank sender) {
  Cursor& cursor = cursor_of(sender);
  std::vector<Rank>& held = cursor.held;
  const auto waits = [&](Rank rank) {
    const TraceRecord& receipt = cursor_of(rank).record();
    return !cursor.ended && cursor.last_sent < receipt.sequence;
  };
  const auto due = std::stable_partition(held.begin(), held.end(), waits);
  const std::vector<Rank> released(due, held.end());
  held.erase(due, held.end());
  for (const Rank rank : released) push(rank);
}

// Receipts wait for each other only if records are missing: releases one of them.
bool MergedTrace::release_any() {
  for (Cursor& sender : cursors_)
    if (!sender.held.empty()) {
      const Rank rank = sender.held.back();
      sender.held.pop_back();
      sender.last_sent = cursor_of(rank).record().sequence;
      push(rank);
      return true;
    }
  return false;
}

}  // namespace grapevine
