// MergedTrace: the records of all ranks of a run, in one order and by one clock.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/trace/clock_fit.hpp"
#include "messages/trace/trace_file.hpp"

namespace grapevine {

// A process of the run was paused (SIGSTOP, swapping, a suspended machine), by the common clock.
struct ProcessPause {
  std::int32_t process = 0;
  Pause pause;
};

// Streams: a frame of each rank is in memory at a time. Times are nanoseconds by the coordinator's
// clock since the first record of the trace. Messages are received after they were sent, whatever
// the clocks say: a receipt, and what the rank did after it, waits for the record of the sending,
// and its time is moved up to it. A resumed run's records replace those that were recorded after
// the checkpoint that it has resumed from. Not thread-safe.
class MergedTrace {
 public:
  // `run`: a run's folder, or a folder of trace files. Errors (bad_input): no trace there; files of
  // different jobs. A file of a process without a readable header is missing (see missing()).
  static Expected<MergedTrace> open(const std::string& run);

  std::int32_t workers() const { return workers_; }
  std::int32_t servers() const { return servers_; }
  std::int32_t ranks() const { return workers_ + servers_; }
  std::int32_t processes() const { return processes_; }
  std::int32_t process_of(Rank rank) const;               // -1: not known
  const TraceHeader& header(std::int32_t process) const;  // of its last part; of any: the first
  const std::vector<ProcessPause>& pauses() const { return pauses_; }
  // Of the settings of the job while it ran, in the order of their times, which are those of
  // records.
  const std::vector<SettingsChange>& changes() const { return changes_; }
  std::int64_t sampled() const { return sampled_; }
  std::uint64_t records() const { return records_; }  // in all files
  // One sentence each: what of the run this trace does not tell.
  const std::vector<std::string>& missing() const { return missing_; }

  // The next record, valid until the next call; null at the end, or where a file cannot be read any
  // more (then missing() says so).
  const TraceRecord* next();
  // From the first record again.
  void rewind();

 private:
  struct Frame {
    std::size_t file = 0;
    RecordsFrame frame;
  };
  // What a rank has saved for checkpoints, and begun with.
  struct Marks {
    struct Cut {
      std::size_t frame = 0, at = 0;
      TraceRecord record;
    };
    std::vector<Cut> cuts;                        // in their order
    std::map<std::int32_t, TraceRecord> resumed;  // by the number of the run that begins
  };
  // Where the stream of one rank stands.
  struct Cursor {
    Rank rank = 0;
    std::vector<Frame> frames;
    std::size_t next_frame = 0;
    std::vector<TraceRecord> records;
    std::size_t at = 0;
    std::uint64_t last_sent = 0;  // the newest message of this rank that next() has returned
    bool ended = false;
    // Undone by a resumption: records of these frames from this index on.
    std::vector<std::size_t> undone_from;  // by frame; its size: none
    // The messages sent in frames that were looked at before their turn.
    std::map<std::size_t, std::vector<std::uint64_t>> sent_ahead;
    std::vector<Rank> held;  // the ranks whose receipts wait for this one

    const TraceRecord& record() const { return records[at]; }
  };
  // The next record of a rank, in a heap whose top is the earliest.
  struct Due {
    std::int64_t time_ns = 0;
    Rank rank = 0;
    bool operator<(const Due& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : rank > other.rank;
    }
  };

  Expected<void> add_files(const std::string& folder);
  void order_files();
  std::int32_t number_of(const TraceFileIndex& file) const;
  std::int32_t count_servers() const;
  Expected<void> check_one_run();
  void align_clocks();
  ClockFit clock_of(const TraceFileIndex& file) const;
  std::size_t parts_before(const TraceFileIndex& file) const;
  void index_ranks();
  void drop_undone();
  Marks marks_of(Cursor& cursor);
  bool is_done_again(std::size_t file) const;
  void drop_undone(Cursor& cursor, const Marks& marks, std::int32_t run,
                   const TraceRecord& resumed);
  void collect_changes();
  void find_zero();
  void note_missing();
  void note_missing_processes(const std::set<std::int32_t>& present);

  Cursor& cursor_of(Rank rank);  // REQUIRES: the rank has records
  bool has_records(Rank rank) const;
  void note(const std::string& missing);
  bool read(Cursor& cursor, std::size_t frame, std::vector<TraceRecord>& records);
  bool load(Cursor& cursor);
  void advance(Rank rank);
  void push(Rank rank);
  bool is_held(const TraceRecord& record);
  bool is_sent_later(Cursor& sender, std::uint64_t sequence);
  const std::vector<std::uint64_t>& sent_in(Cursor& sender, std::size_t frame);
  void release(Rank sender);
  bool release_any();

  std::vector<TraceFileIndex> files_;  // by process, run, part and segment
  // By run: how many of the training came before it.
  std::map<std::uint64_t, std::int32_t> run_numbers_;
  std::vector<ClockFit> clocks_;  // by file
  std::vector<OpenFile> open_;    // by file; null: not yet
  std::int32_t workers_ = 0, servers_ = 0, processes_ = 1;
  std::int64_t sampled_ = 1;
  std::uint64_t records_ = 0;
  std::int64_t zero_ns_ = 0;
  std::vector<ProcessPause> pauses_;
  std::vector<SettingsChange> changes_;
  // By number of the run: the time of the cut that it has resumed from, by the common clock.
  std::map<std::int32_t, std::int64_t> resumed_from_ns_;
  std::vector<std::string> missing_;
  std::set<std::int32_t> damaged_;  // processes with a file that cannot be read

  std::vector<Cursor> cursors_;          // of the ranks that have records, by rank
  std::vector<std::int32_t> cursor_at_;  // by rank: in cursors_; -1: the rank has no records
  std::vector<Due> heap_;
  std::int64_t now_ns_ = 0;  // of the record that next() has returned
  Rank current_ = -1;        // and its rank
  std::string body_;         // scratch
};

}  // namespace grapevine
