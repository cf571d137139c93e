#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include "messages/trace/merged_trace.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"
#include "tests/fuzz/trace_input.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// A folder whose files are in memory.
class TraceInputFolder {
 public:
  TraceInputFolder()
      : path_(fs::temp_directory_path() / ("grapevine-fuzz-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    for (std::size_t i = 0; i < files_.size(); ++i)
      fs::create_symlink(files_[i].path(), path_ / (std::to_string(i) + ".gvtrace"));
  }
  ~TraceInputFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TraceInputFolder(const TraceInputFolder&) = delete;
  TraceInputFolder& operator=(const TraceInputFolder&) = delete;

  void fill(std::string_view input) const {
    for (const fuzzing::ScratchFile& file : files_)
      file.fill(fuzzing::trace_file_of(fuzzing::take_until(fuzzing::kEndOfFile, input)));
  }
  std::string path() const { return path_.string(); }

 private:
  const fs::path path_;
  std::array<fuzzing::ScratchFile, fuzzing::kTraceInputFiles> files_;
};

std::vector<TraceRecord> all_records(MergedTrace& trace) {
  std::vector<TraceRecord> records;
  trace.rewind();
  while (const TraceRecord* record = trace.next()) {
    GRAPEVINE_CHECK(records.empty() || records.back().time_ns <= record->time_ns,
                    "records are not in the order of time");
    GRAPEVINE_CHECK(record->rank >= 0 && record->rank < trace.ranks(), "a record of no rank");
    records.push_back(*record);
    GRAPEVINE_CHECK(records.size() <= trace.records(), "more records than the files have");
  }
  return records;
}

}  // namespace

void fuzz_one_trace_file(const std::uint8_t* data, std::size_t size) {
  static const TraceInputFolder folder;
  folder.fill(fuzzing::text_of(data, size));
  auto trace = MergedTrace::open(folder.path());
  if (!trace) return check_one_line(trace.error());
  const std::vector<TraceRecord> once = all_records(*trace);
  GRAPEVINE_CHECK(all_records(*trace) == once, "a second reading gives other records");
  for (const std::string& missing : trace->missing())
    GRAPEVINE_CHECK(!has_control_characters(missing), "not one line: ", missing);
  trace->process_of(0);
  trace->header(0);
}

}  // namespace grapevine
