// The files of a trace: written by appending, readable at any moment.
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/expected.hpp"
#include "messages/trace/repeated_frames.hpp"
#include "messages/trace/trace_format.hpp"

namespace grapevine {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

// "process-0001.gvtrace"; ".2" for the third part of a process, "-0003" for the fourth segment.
std::string trace_file_name(std::int32_t process, std::int32_t part, std::int32_t segment);
// The same back; nothing: no name of a trace.
struct TraceFileName {
  std::int32_t process = 0, part = 0, segment = 0;
};
std::optional<TraceFileName> read_trace_file_name(const std::string& name);
// The name of a file without its folders.
std::string name_in_trace(const std::string& path);

// Appends frames to a file of one process. Every write reaches the operating system at once: a
// process that is killed leaves its trace. Not thread-safe.
class TraceFileWriter {
 public:
  // `folder` exists. `limit`: bytes of all segments together, the oldest are removed; 0: none.
  TraceFileWriter(std::string folder, TraceHeader header, std::uint64_t limit);

  // Frames that are whole. Errors (io) name the file: it has none of these frames, and may take
  // later ones.
  Expected<void> write(std::string_view frames);
  // Is in the trace; later segments repeat it at their beginning: without it they could not be
  // read.
  template <class Repeated>
  void repeat(const Repeated& what) {
    if (limit_ > 0) repeated_.add(what);
  }
  // Writes the end, and syncs to the disk. Nothing may follow.
  Expected<void> close();

 private:
  struct Segment {
    std::string path;
    std::uint64_t bytes = 0;
    std::uint64_t repeated = 0;  // of these: what its beginning repeats
  };
  bool is_full(std::size_t more) const;
  Expected<void> begin_segment();
  Expected<void> append(std::string_view bytes);
  void remove_oldest();
  Error failed(const char* action) const;

  const std::string folder_;
  TraceHeader header_;
  const std::uint64_t limit_;
  OpenFile file_;
  std::deque<Segment> segments_;  // that are on the disk; the last is open
  RepeatedFrames repeated_;
};

// Where the records of one rank stand in a file.
struct RecordsFrame {
  std::uint64_t offset = 0;  // of the body
  std::uint32_t length = 0;
  bool marked = false;
  RecordsHead head;
};

// The process was paused between these times of its clock, those of two pulses: none came between,
// although several were due.
struct Pause {
  std::int64_t begin_ns = 0, end_ns = 0;
};

inline constexpr std::int64_t kPulseIntervalNs = 50'000'000;
// Between two pulses; more than a busy machine makes of the interval.
inline constexpr std::int64_t kLeastPauseNs = 200'000'000;

// One file, as far as it is whole.
struct TraceFileIndex {
  std::string path;
  TraceHeader header;
  std::vector<RecordsFrame> records;  // in the order of the file: of each rank in that of time
  std::vector<ClockSample> clocks;
  std::vector<Pause> pauses;
  std::vector<SettingsChange> changes;
  std::int64_t last_ns = 0;    // of all that has a time
  std::uint64_t left_out = 0;  // records for which there was no room in memory or on the disk
  bool closed = false;         // the file has its end
  std::string problem;         // why the rest of it cannot be read; empty: it is whole
};

// Reads the file once, and keeps no record in memory. A last frame that is cut off or damaged ends
// the file there, with `problem`. Errors (bad_input): not a trace of this version, no header.
Expected<TraceFileIndex> index_trace_file(const std::string& path);

// Reads the body of a frame that was indexed. Errors (io).
Expected<void> read_frame(std::FILE* file, const RecordsFrame& frame, std::string& body);

}  // namespace grapevine
