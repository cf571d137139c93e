// The files of a run: which there are, by which clocks, what of them counts and what is missing.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "messages/trace/merged_trace.hpp"
#include "messages/trace/wrapping.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kAllOfFrame = static_cast<std::size_t>(-1);

bool same_machine(const TraceHeader& a, const TraceHeader& b) {
  return !a.boot.empty() && a.boot == b.boot;
}

// a's zero minus b's.
std::int64_t zero_difference(const TraceHeader& a, const TraceHeader& b) {
  return same_machine(a, b) ? wrapped_difference(a.zero_monotonic_ns, b.zero_monotonic_ns)
                            : wrapped_difference(a.zero_realtime_ns, b.zero_realtime_ns);
}

bool may_be_of(const ClockSample& sample, const TraceHeader& header) {
  return sample.process == header.process &&
         sample.zero_ns.value_or(header.zero_monotonic_ns) == header.zero_monotonic_ns;
}

// Of samples of one process in the order of time. Those of earlier versions do not name the clock:
// a process that has returned reads an earlier time than before.
std::vector<ClockSample> of_one_clock(const std::vector<ClockSample>& samples, std::size_t number) {
  std::vector<ClockSample> of_one;
  std::size_t clock = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i > 0 && samples[i].remote_ns < samples[i - 1].remote_ns) ++clock;
    if (samples[i].zero_ns || clock == number) of_one.push_back(samples[i]);
  }
  return of_one;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

Expected<void> MergedTrace::add_files(const std::string& folder) {
  std::error_code failure;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, failure))
    if (entry.path().extension() == ".gvtrace") paths.push_back(entry.path().string());
  if (failure)
    return bad_input(fmt::format("{}: {}: give the folder of a run", folder, failure.message()));
  if (paths.empty())
    return bad_input(folder + ": no trace there: give the folder of a run with --trace on");
  std::sort(paths.begin(), paths.end());
  std::optional<Error> unreadable;
  for (const std::string& path : paths) {
    auto index = index_trace_file(path);
    if (index) {
      files_.push_back(*std::move(index));
      continue;
    }
    missing_.push_back(index.error().message);
    unreadable = index.error();
    if (const auto name = read_trace_file_name(name_in_trace(path))) damaged_.insert(name->process);
  }
  if (files_.empty()) return *unreadable;
  order_files();
  return {};
}

// The parts of process 0 are the runs. Those of another process say nothing of that: one that has
// returned has several in one run, one that was not there before begins with 0 in a later one.
void MergedTrace::order_files() {
  for (const TraceFileIndex& file : files_) {
    const TraceHeader& header = file.header;
    if (header.process == 0) run_numbers_.emplace(header.run, header.part);
  }
  const auto place_of = [this](const TraceFileIndex& file) {
    const TraceHeader& header = file.header;
    return std::make_tuple(header.process, number_of(file), header.part, header.segment);
  };
  std::sort(files_.begin(), files_.end(),
            [&](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
}

// Without a file of process 0 there is one run alone (see check_one_run()).
std::int32_t MergedTrace::number_of(const TraceFileIndex& file) const {
  const auto known = run_numbers_.find(file.header.run);
  return known == run_numbers_.end() ? 0 : known->second;
}

// Of all wirings of the run: those of its start, and those that have records.
std::int32_t MergedTrace::count_servers() const {
  std::int32_t servers = 0;
  for (const TraceFileIndex& file : files_) {
    servers = std::max(servers, file.header.servers);
    for (const RecordsFrame& frame : file.records)
      servers = std::max(servers, frame.head.rank + 1 - file.header.workers);
  }
  return servers;
}

Expected<void> MergedTrace::check_one_run() {
  const TraceHeader& first = files_.front().header;
  workers_ = first.workers;
  servers_ = count_servers();
  std::set<std::uint64_t> runs, with_head;
  std::map<std::uint64_t, std::int32_t> workers;  // by run: one that is continued may have others
  for (const TraceFileIndex& file : files_) {
    const TraceHeader& header = file.header;
    const bool same_run =
        workers.emplace(header.run, header.workers).first->second == header.workers;
    const bool may_change = servers_ == 0 || header.workers == workers_;
    workers_ = std::max(workers_, header.workers);
    const bool same_servers =
        header.servers == first.servers || header.spare > 0 || first.spare > 0;
    if (!same_run || !same_servers)
      return bad_input(fmt::format("{} and {} are of different jobs: remove one of them",
                                   files_.front().path, file.path));
    if (!may_change)
      return bad_input(fmt::format(
          "{} and {}: ranks that serve in one part of the run train in another, which has {} ranks "
          "that train: move the files of one part to another folder",
          files_.front().path, file.path, header.workers));
    runs.insert(file.header.run);
    if (file.header.process == 0) with_head.insert(file.header.run);
    processes_ = std::max(processes_, file.header.processes);
    sampled_ = std::max(sampled_, file.header.sampled);
  }
  // A resumption is a run of its own, and has a process 0 of its own, too.
  for (const TraceFileIndex& file : files_)
    if (runs.size() > 1 && with_head.count(file.header.run) == 0)
      return bad_input(fmt::format("{} and {} are of different runs: remove one of them",
                                   files_.front().path, file.path));
  return {};
}

void MergedTrace::align_clocks() {
  for (const TraceFileIndex& file : files_) {
    clocks_.push_back(clock_of(file));
    for (const Pause& pause : file.pauses)
      pauses_.push_back({file.header.process,
                         {clocks_.back().to_coordinator(pause.begin_ns),
                          clocks_.back().to_coordinator(pause.end_ns)}});
  }
}

// How many of its process in the same run.
std::size_t MergedTrace::parts_before(const TraceFileIndex& file) const {
  std::set<std::int32_t> parts;
  for (const TraceFileIndex& other : files_)
    if (other.header.process == file.header.process && other.header.run == file.header.run &&
        other.header.part < file.header.part)
      parts.insert(other.header.part);
  return parts.size();
}

// To the clock of the first file. Machines that share a monotonic clock need no samples of it.
ClockFit MergedTrace::clock_of(const TraceFileIndex& file) const {
  const TraceHeader& reference = files_.front().header;
  if (same_machine(file.header, reference))
    return ClockFit(zero_difference(file.header, reference));
  std::vector<ClockSample> samples;
  const TraceHeader* head = nullptr;
  for (const TraceFileIndex& other : files_) {
    if (other.header.process != 0 || other.header.run != file.header.run) continue;
    head = &other.header;
    for (const ClockSample& sample : other.clocks)
      if (may_be_of(sample, file.header)) samples.push_back(sample);
  }
  // Each segment of a file repeats those of the segments before it.
  std::sort(samples.begin(), samples.end(),
            [](const ClockSample& a, const ClockSample& b) { return a.sent_ns < b.sent_ns; });
  samples = of_one_clock(samples, parts_before(file));
  if (samples.empty()) return ClockFit(zero_difference(file.header, reference));
  ClockFit fit(samples);
  fit.shift_by(zero_difference(*head, reference));
  return fit;
}

// A header may state many ranks: memory is taken for those alone that have records.
void MergedTrace::index_ranks() {
  cursor_at_.assign(static_cast<std::size_t>(ranks()), -1);
  std::set<Rank> with_records;
  for (const TraceFileIndex& file : files_)
    for (const RecordsFrame& frame : file.records) with_records.insert(frame.head.rank);
  for (const Rank rank : with_records) {
    cursor_at_[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(cursors_.size());
    cursors_.emplace_back().rank = rank;
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const RecordsFrame& frame : files_[i].records) {
      Cursor& cursor = cursor_of(frame.head.rank);
      cursor.frames.push_back({i, frame});
      cursor.undone_from.push_back(kAllOfFrame);
      records_ += frame.head.count;
    }
  // A rank may be in another process after a resumption.
  for (Cursor& cursor : cursors_)
    std::stable_sort(cursor.frames.begin(), cursor.frames.end(),
                     [this](const Frame& a, const Frame& b) {
                       return number_of(files_[a.file]) < number_of(files_[b.file]);
                     });
  open_.resize(files_.size());
}

// Keeps what came before the cut from which a later run has begun, also of ranks that this one has
// not.
void MergedTrace::drop_undone() {
  std::vector<Marks> marks;
  for (Cursor& cursor : cursors_) marks.push_back(marks_of(cursor));
  std::map<std::int32_t, TraceRecord> resumptions;  // by the number of the run
  for (const Marks& of_rank : marks)
    for (const auto& [run, record] : of_rank.resumed) resumptions.emplace(run, record);
  for (std::size_t i = 0; i < cursors_.size(); ++i)
    for (const auto& [run, record] : resumptions) drop_undone(cursors_[i], marks[i], run, record);
}

MergedTrace::Marks MergedTrace::marks_of(Cursor& cursor) {
  Marks marks;
  for (std::size_t f = 0; f < cursor.frames.size(); ++f) {
    if (!cursor.frames[f].frame.marked) continue;
    cursor.next_frame = f;
    if (!load(cursor)) continue;
    for (std::size_t i = 0; i < cursor.records.size(); ++i) {
      const TraceRecord& record = cursor.records[i];
      if (record.kind == EventKind::cut) marks.cuts.push_back({f, i, record});
      if (record.kind == EventKind::resumed)
        marks.resumed.emplace(number_of(files_[cursor.frames[f].file]), record);
    }
  }
  return marks;
}

void MergedTrace::drop_undone(Cursor& cursor, const Marks& marks, std::int32_t run,
                              const TraceRecord& resumed) {
  const auto is_of_earlier_run = [&](std::size_t frame) {
    return number_of(files_[cursor.frames[frame].file]) < run;
  };
  const auto cut = std::find_if(marks.cuts.rbegin(), marks.cuts.rend(), [&](const Marks::Cut& at) {
    return at.record.operation == resumed.operation && at.record.sequence == resumed.sequence &&
           is_of_earlier_run(at.frame);
  });
  if (cut == marks.cuts.rend()) return;
  cursor.undone_from[cut->frame] = std::min(cursor.undone_from[cut->frame], cut->at + 1);
  std::int64_t& last = resumed_from_ns_.emplace(run, cut->record.time_ns).first->second;
  last = std::max(last, cut->record.time_ns);
  for (std::size_t f = cut->frame + 1; f < cursor.frames.size() && is_of_earlier_run(f); ++f)
    cursor.undone_from[f] = 0;
}

// Takes each change once, although later files of a process repeat it. Changes after the checkpoint
// from which a later run resumed did not happen.
void MergedTrace::collect_changes() {
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const SettingsChange& change : files_[i].changes) {
      const SettingsChange here{clocks_[i].to_coordinator(change.time_ns), change.settings};
      const auto undoes = [&](const auto& resumption) {
        return resumption.first > number_of(files_[i]) && resumption.second < here.time_ns;
      };
      const bool undone = std::any_of(resumed_from_ns_.begin(), resumed_from_ns_.end(), undoes);
      const bool known = std::find(changes_.begin(), changes_.end(), here) != changes_.end();
      if (!undone && !known) changes_.push_back(here);
    }
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
}

void MergedTrace::find_zero() {
  std::optional<std::int64_t> first;
  for (const Cursor& cursor : cursors_)
    if (!cursor.frames.empty()) {
      const Frame& frame = cursor.frames.front();
      const std::int64_t time = clocks_[frame.file].to_coordinator(frame.frame.head.first_ns);
      first = first ? std::min(*first, time) : time;
    }
  zero_ns_ = first.value_or(0);
  for (ProcessPause& of_process : pauses_) {
    of_process.pause.begin_ns = wrapped_difference(of_process.pause.begin_ns, zero_ns_);
    of_process.pause.end_ns = wrapped_difference(of_process.pause.end_ns, zero_ns_);
  }
  for (SettingsChange& change : changes_)
    change.time_ns = wrapped_difference(change.time_ns, zero_ns_);
}

// Whether a later run has begun from a cut before the last records of this file, so that what it
// lacks was done again. A later part of the same run has not done it.
bool MergedTrace::is_done_again(std::size_t file) const {
  const std::int64_t last_ns = clocks_[file].to_coordinator(files_[file].last_ns);
  return std::any_of(resumed_from_ns_.begin(), resumed_from_ns_.end(), [&](const auto& resumed) {
    return resumed.first > number_of(files_[file]) && resumed.second <= last_ns;
  });
}

void MergedTrace::note_missing() {
  std::set<std::int32_t> present = damaged_;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const TraceFileIndex& file = files_[i];
    const TraceHeader& header = file.header;
    present.insert(header.process);
    const bool first_of_part = i == 0 || files_[i - 1].header.process != header.process ||
                               files_[i - 1].header.part != header.part;
    if (first_of_part && header.segment > 0)
      missing_.push_back(
          fmt::format("process {}: its first {} trace file{} removed to keep --trace-limit",
                      header.process, header.segment, header.segment == 1 ? " was" : "s were"));
    const bool last_of_part = i + 1 == files_.size() ||
                              files_[i + 1].header.process != header.process ||
                              files_[i + 1].header.part != header.part;
    const bool lacks_records = last_of_part && !file.closed && !is_done_again(i);
    const double until =
        seconds(wrapped_difference(clocks_[i].to_coordinator(file.last_ns), zero_ns_));
    if (!file.problem.empty())
      missing_.push_back(name_in_trace(file.path) + ": " + file.problem);
    else if (lacks_records)
      missing_.push_back(fmt::format(
          "process {} has not closed its trace: it was killed, or still runs; its last records are "
          "of {:.3f} s",
          header.process, until));
    if (file.left_out > 0)
      missing_.push_back(fmt::format("{}: {} records were left out, the disk was full or too slow",
                                     name_in_trace(file.path), file.left_out));
  }
  note_missing_processes(present);
  if (sampled_ > 1)
    missing_.push_back(fmt::format("only every {}th step is recorded (--trace-sample)", sampled_));
}

// Neighbours in one sentence.
void MergedTrace::note_missing_processes(const std::set<std::int32_t>& present) {
  std::int32_t first = 0;
  const auto note_until = [&](std::int32_t end) {
    if (end - first == 1)
      missing_.push_back(fmt::format("process {} has left no trace", first));
    else if (end > first)
      missing_.push_back(fmt::format("processes {} to {} have left no trace", first, end - 1));
    first = end + 1;
  };
  for (const std::int32_t process : present)
    if (process < processes_) note_until(process);
  note_until(processes_);
}

std::int32_t MergedTrace::process_of(Rank rank) const {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    const auto& own = file->header.ranks;
    if (std::find(own.begin(), own.end(), rank) != own.end()) return file->header.process;
  }
  return -1;
}

const TraceHeader& MergedTrace::header(std::int32_t process) const {
  for (auto file = files_.rbegin(); file != files_.rend(); ++file)
    if (file->header.process == process) return file->header;
  return files_.front().header;
}

}  // namespace grapevine
