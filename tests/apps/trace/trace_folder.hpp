// TraceFolder: a trace that a test writes, in a folder that goes with it.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/trace/trace_file.hpp"

namespace grapevine::testing_apps {

// An empty folder, removed at the end.
class TestFolder {
 public:
  TestFolder() {
    static std::atomic<int> number{0};
    path_ = std::filesystem::temp_directory_path() /
            ("grapevine-trace-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The usual content of a record, for `{kind, time, rank, …}` in one line.
inline TraceRecord record_of(EventKind kind, std::int64_t time_ns, Rank rank, Step step) {
  TraceRecord record;
  record.kind = kind;
  record.time_ns = time_ns;
  record.rank = record.origin = rank;
  record.step = record.origin_step = record.version = step;
  return record;
}

// The records of a run, then its files: one process, or one for each rank.
class TraceFolder {
 public:
  explicit TraceFolder(std::int32_t workers, std::int32_t servers = 0)
      : workers_(workers), servers_(servers) {
    std::filesystem::create_directory(folder_.path("trace"));
  }

  // In the order of the times of each rank. The reference holds until the next call.
  TraceRecord& add(EventKind kind, std::int64_t time_ns, Rank rank, Step step) {
    std::vector<TraceRecord>& records = records_[rank];
    records.push_back(record_of(kind, time_ns, rank, step));
    return records.back();
  }
  // A message: its sending at `from`, its receipt at `to`. Returns its sequence.
  std::uint64_t message(Rank from, Step step, std::int64_t sent_ns, Rank to, Step to_step,
                        std::int64_t received_ns, PayloadKind payload, std::int64_t operation,
                        std::uint64_t bytes) {
    const std::uint64_t sequence = ++sequences_[from];
    for (const bool sent : {true, false}) {
      TraceRecord& record = sent ? add(EventKind::sent, sent_ns, from, step)
                                 : add(EventKind::received, received_ns, to, to_step);
      record.peer = sent ? to : from;
      record.origin = from;
      record.origin_step = record.version = step;
      record.sequence = sequence;
      record.payload = payload;
      record.operation = operation;
      if (sent) record.bytes = bytes;
    }
    return sequence;
  }

  TraceHeader header(std::int32_t process = 0, std::int32_t processes = 1) const {
    TraceHeader header;
    header.process = process;
    header.processes = processes;
    for (Rank rank = 0; rank < workers_ + servers_; ++rank)
      if (processes == 1 || rank == process) header.ranks.push_back(rank);
    header.workers = workers_;
    header.servers = servers_;
    header.host = "testhost";
    header.boot = "boot";
    header.version = "0.1.0";
    header.wiring = {{"exchange", "gossip"}};
    return header;
  }

  // In one process; `closed`: with its end.
  void write(bool closed = true) const {
    TraceFileWriter writer(folder_.path("trace"), header(), 0);
    std::string frames;
    for (const auto& [rank, records] : records_) append_records(frames, records);
    const auto written = writer.write(frames);
    GRAPEVINE_CHECK(written.ok(), written.error().message);
    if (!closed) return;
    const auto ended = writer.close();
    GRAPEVINE_CHECK(ended.ok(), ended.error().message);
  }

  std::string path() const { return folder_.path(); }
  std::string path(const std::string& name) const { return folder_.path(name); }
  const std::map<Rank, std::vector<TraceRecord>>& records() const { return records_; }

 private:
  TestFolder folder_;
  std::int32_t workers_, servers_;
  std::map<Rank, std::vector<TraceRecord>> records_;
  std::map<Rank, std::uint64_t> sequences_;
};

}  // namespace grapevine::testing_apps
