#include "apps/bench/bench_trace.hpp"

#include <array>
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "actors/record/trace_recorder.hpp"
#include "apps/bench/bench_operations.hpp"
#include "apps/bench/temporary_folder.hpp"
#include "messages/trace/merged_trace.hpp"
#include "messages/trace/trace_file.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBenchRun = 1;

// Two ranks that do push-sum: the events of their steps, as the peers note them.
class RecordedSteps {
 public:
  RecordedSteps() : recorders_{TraceRecorder(0, 1, kBenchRun), TraceRecorder(1, 1, kBenchRun)} {}

  // A batch of each rank.
  void record() {
    while (!recorders_[1].full()) step();
    for (TraceRecorder& recorder : recorders_) batches_.push_back(recorder.take());
  }

  std::vector<std::vector<TraceRecord>> take() { return std::exchange(batches_, {}); }

 private:
  void step() {
    for (const Rank rank : {0, 1}) {
      TraceRecorder& recorder = recorders_[static_cast<std::size_t>(rank)];
      Event event;
      event.step = step_;
      event.peer = 1 - rank;
      event.stamp = stamp_of(rank);
      recorder.asked(time_ns_ += 1'000, step_, step_);
      event.kind = EventKind::produced;
      recorder.produced(time_ns_ += 4'000'000, event, 1e-5, 4e-3);
      event.kind = EventKind::sent;
      recorder.event(time_ns_ += 20'000, event);
    }
    for (const Rank rank : {0, 1}) {
      TraceRecorder& recorder = recorders_[static_cast<std::size_t>(rank)];
      Event event;
      event.step = step_;
      event.peer = 1 - rank;
      event.stamp = stamp_of(1 - rank);
      for (const EventKind kind : {EventKind::received, EventKind::applied, EventKind::step_done}) {
        event.kind = kind;
        recorder.event(time_ns_ += 30'000, event);
      }
    }
    ++step_;
  }

  Stamp stamp_of(Rank origin) const {
    Stamp stamp;
    stamp.origin = origin;
    stamp.step = stamp.version = step_;
    stamp.sequence = static_cast<std::uint64_t>(step_) + 1;
    return stamp;
  }

  std::array<TraceRecorder, 2> recorders_;
  std::vector<std::vector<TraceRecord>> batches_;
  Step step_ = 0;
  std::int64_t time_ns_ = 0;
};

std::string frames_of(const std::vector<std::vector<TraceRecord>>& batches) {
  std::string frames;
  for (const auto& batch : batches) append_records(frames, batch);
  return frames;
}

Expected<void> write_file(const std::string& folder, const std::string& frames) {
  TraceHeader header;
  header.run = kBenchRun;
  header.ranks = {0, 1};
  header.workers = 2;
  TraceFileWriter writer(folder, header, 0);
  if (auto written = writer.write(frames); !written) return written;
  return writer.close();
}

Expected<void> read_run(const std::string& run, std::uint64_t records) {
  auto trace = MergedTrace::open(run);
  if (!trace) return trace.error();
  std::uint64_t count = 0;
  while (trace->next() != nullptr) ++count;
  if (count == records) return {};
  return Error{Errc::failed, "bench trace: " + std::to_string(count) + " of " +
                                 std::to_string(records) + " records were read"};
}

// So many batches that their frames have `bytes` bytes.
std::vector<std::vector<TraceRecord>> batches_of(std::int64_t bytes) {
  RecordedSteps steps;
  std::vector<std::vector<TraceRecord>> batches;
  for (std::size_t size = 0; size < static_cast<std::size_t>(bytes);) {
    steps.record();
    for (auto& batch : steps.take()) {
      size += frames_of({batch}).size();
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

Expected<void> measure_trace(const TraceBenchOptions& options, std::int64_t bytes,
                             const std::string& run, std::ostream& out) {
  const std::vector<std::vector<TraceRecord>> batches = batches_of(bytes);
  const std::string frames = frames_of(batches);
  std::uint64_t records = 0;
  for (const auto& batch : batches) records += batch.size();
  const auto size = static_cast<double>(frames.size());
  const std::string folder = run + "/trace";
  const std::vector<BenchOperation> operations = {
      {"record", size,
       [&] {
         RecordedSteps steps;
         for (std::size_t i = 0; i < batches.size(); i += 2) steps.record();
         return Expected<void>();
       }},
      {"encode", size,
       [&] {
         if (frames_of(batches).size() == frames.size()) return Expected<void>();
         return Expected<void>(Error{Errc::failed, "bench trace: the frames differ"});
       }},
      {"write", size, [&] { return write_file(folder, frames); }},
      {"read", size, [&] { return read_run(run, records); }}};
  auto seconds = time_operations(operations, options.iterations);
  if (!seconds) return seconds.error();
  const nlohmann::ordered_json more = {{"records", records}};
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (options.json)
      print_operation_json(out, "trace", bytes, operations[i], std::move((*seconds)[i]), more);
    else
      print_operation_line(out, std::to_string(bytes), operations[i], std::move((*seconds)[i]));
  return {};
}

}  // namespace

Expected<void> run_trace_bench(const TraceBenchOptions& options, std::ostream& out) {
  if (!options.json) print_operations_title(out, "trace", options.iterations, "bytes of the file");
  const auto folder = TemporaryFolder::make();
  if (!folder) return folder.error();
  std::error_code failed;
  fs::create_directory((*folder)->path() + "/trace", failed);
  if (failed) return Error{Errc::io, (*folder)->path() + "/trace: " + failed.message()};
  for (const std::int64_t bytes : options.bytes)
    if (auto measured = measure_trace(options, bytes, (*folder)->path(), out); !measured)
      return measured;
  return {};
}

}  // namespace grapevine
