#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "messages/trace/merged_trace.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"
#include "tests/fuzz/trace_input.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace {

// The files of the input, and a folder for each number of them.
class TraceInputFolders {
 public:
  TraceInputFolders() {
    for (std::size_t count = 1; count <= files_.size(); ++count)
      for (std::size_t i = 0; i < count; ++i)
        folders_[count - 1].add(std::to_string(i) + ".gvtrace", files_[i]);
  }

  // The folder that has them.
  std::string fill(std::string_view input) {
    std::size_t count = 0;
    do
      files_[count++].fill(fuzzing::trace_file_of(fuzzing::take_until(fuzzing::kEndOfFile, input)));
    while (!input.empty() && count < files_.size());
    return folders_[count - 1].path();
  }

 private:
  std::array<fuzzing::ScratchFile, fuzzing::kTraceInputFiles> files_;
  std::array<fuzzing::ScratchFolder, fuzzing::kTraceInputFiles> folders_ = {
      fuzzing::ScratchFolder("trace-1"), fuzzing::ScratchFolder("trace-2"),
      fuzzing::ScratchFolder("trace-3")};
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
  static TraceInputFolders folders;
  auto trace = MergedTrace::open(folders.fill(fuzzing::text_of(data, size)));
  if (!trace) return check_one_line(trace.error());
  const std::vector<TraceRecord> once = all_records(*trace);
  GRAPEVINE_CHECK(all_records(*trace) == once, "a second reading gives other records");
  for (const std::string& missing : trace->missing())
    GRAPEVINE_CHECK(!has_control_characters(missing), "not one line: ", missing);
  trace->process_of(0);
  trace->header(0);
}

}  // namespace grapevine
