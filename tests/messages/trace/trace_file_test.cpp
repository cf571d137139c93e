#include "messages/trace/trace_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "messages/trace/merged_trace.hpp"
#include "tests/apps/trace/trace_folder.hpp"
#include "tests/file_size_limit.hpp"
#include "tests/messages/trace/all_records.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace trace_file_test {

using testing_apps::TestFolder;
using testing_trace::random_records;
using testing_trace::Rng;

TraceHeader header_of(Rank ranks) {
  TraceHeader header;
  for (Rank rank = 0; rank < ranks; ++rank) header.ranks.push_back(rank);
  header.workers = ranks;
  return header;
}

// A file of random frames, and what is to be read from it.
struct RandomFile {
  explicit RandomFile(std::uint64_t seed) {
    Rng rng(seed);
    bytes = trace_magic();
    TraceHeader header = header_of(3);
    header.workers = testing_trace::kRandomMembers;
    append_header(bytes, header);
    frame_ends.push_back(bytes.size());
    records_before.push_back(0);
    for (int frame = 0; frame < 8; ++frame) {
      if (rng() % 3 == 0) {
        append_pulse(bytes, frame * kPulseIntervalNs);
      } else {
        const auto some = random_records(rng, static_cast<Rank>(rng() % 3), 1 + rng() % 6);
        append_records(bytes, some);
        records.insert(records.end(), some.begin(), some.end());
      }
      frame_ends.push_back(bytes.size());
      records_before.push_back(records.size());
    }
    append_end(bytes);
    frame_ends.push_back(bytes.size());
    records_before.push_back(records.size());
  }

  // How many records stand in the frames that end at or before this byte.
  std::size_t records_until(std::size_t byte) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < frame_ends.size(); ++i)
      if (frame_ends[i] <= byte) count = records_before[i];
    return count;
  }

  std::string bytes;
  std::vector<TraceRecord> records;
  std::vector<std::size_t> frame_ends;  // the header's first
  std::vector<std::size_t> records_before;
};

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void expect_prefix(const std::string& path, const RandomFile& file, std::size_t count) {
  const auto records = read_trace_file(path);
  ASSERT_TRUE(records.ok()) << records.error().message;
  ASSERT_EQ(records->size(), count);
  EXPECT_TRUE(std::equal(records->begin(), records->end(), file.records.begin()));
}

// As a process leaves it that is killed in any moment.
TEST(TraceFile, IsReadableUpToAnyByte) {
  const TestFolder folder;
  const std::string path = folder.path("process-0000.gvtrace");
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const RandomFile file(seed);
    for (std::size_t length = 0; length <= file.bytes.size(); ++length) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", cut at " + std::to_string(length));
      put(path, file.bytes.substr(0, length));
      const auto index = index_trace_file(path);
      if (length < file.frame_ends.front()) {
        ASSERT_FALSE(index.ok());
        EXPECT_EQ(index.error().code, Errc::bad_input);
        EXPECT_NE(index.error().message.find(path), std::string::npos);
        continue;
      }
      ASSERT_TRUE(index.ok()) << index.error().message;
      const auto& ends = file.frame_ends;
      const bool at_frame = std::find(ends.begin(), ends.end(), length) != ends.end();
      EXPECT_EQ(index->problem.empty(), at_frame);
      EXPECT_EQ(index->closed, length == file.bytes.size());
      expect_prefix(path, file, file.records_until(length));
    }
  }
}

TEST(TraceFile, ADamagedByteEndsItThere) {
  const TestFolder folder;
  const std::string path = folder.path("process-0000.gvtrace");
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const RandomFile file(seed);
    Rng rng(seed);
    for (std::size_t at = 0; at < file.bytes.size(); ++at) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", damaged at " + std::to_string(at));
      std::string bytes = file.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + rng() % 255));
      put(path, bytes);
      const auto index = index_trace_file(path);
      ASSERT_EQ(index.ok(), at >= file.frame_ends.front());
      if (!index.ok()) continue;
      EXPECT_FALSE(index->problem.empty());
      EXPECT_FALSE(index->closed);
      expect_prefix(path, file, file.records_until(at));
    }
  }
}

TEST(TraceFile, RecordsOfARankThatTheRunLacksAreDamage) {
  const TestFolder folder;
  const std::string path = folder.path("process-0000.gvtrace");
  std::string bytes = trace_magic();
  append_header(bytes, header_of(2));
  std::vector<TraceRecord> records(1);
  records[0].rank = 2;
  append_records(bytes, records);
  put(path, bytes);
  const auto index = index_trace_file(path);
  ASSERT_TRUE(index.ok());
  EXPECT_NE(index->problem.find("records of a rank that the run does not have"), std::string::npos);
  EXPECT_TRUE(index->records.empty());
}

TEST(TraceFile, MissingPulsesAreAPause) {
  const TestFolder folder;
  std::string bytes = trace_magic();
  append_header(bytes, header_of(1));
  for (const std::int64_t ms : {0, 50, 105, 150, 900, 950}) append_pulse(bytes, ms * 1000000);
  const std::string path = folder.path("process-0000.gvtrace");
  put(path, bytes);
  const auto index = index_trace_file(path);
  ASSERT_TRUE(index.ok());
  ASSERT_EQ(index->pauses.size(), 1U);
  EXPECT_EQ(index->pauses[0].begin_ns, 150000000);
  EXPECT_EQ(index->pauses[0].end_ns, 900000000);
  EXPECT_EQ(index->last_ns, 950000000);
}

TEST(TraceFile, NamesSayProcessPartAndSegment) {
  EXPECT_EQ(trace_file_name(1, 0, 0), "process-0001.gvtrace");
  EXPECT_EQ(trace_file_name(12, 2, 0), "process-0012.2.gvtrace");
  EXPECT_EQ(trace_file_name(0, 0, 3), "process-0000-0003.gvtrace");
  EXPECT_EQ(trace_file_name(0, 1, 10000), "process-0000.1-10000.gvtrace");
}

// ---- --trace-limit ----

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

TEST(TraceFile, ALimitKeepsTheNewest) {
  constexpr std::uint64_t kLimit = 64 << 10;
  constexpr int kFrames = 3000;
  const TestFolder folder;
  TraceFileWriter writer(folder.path(), header_of(1), kLimit);
  const ClockSample sample{1, 10, 20, 30};
  std::string clock;
  append_clock(clock, sample);
  ASSERT_TRUE(writer.write(clock).ok());
  writer.repeat(sample);
  for (int i = 0; i < kFrames; ++i) {
    std::vector<TraceRecord> records;
    for (int j = 0; j < 10; ++j)
      records.push_back(
          testing_apps::record_of(EventKind::step_done, 10 * i + j, 0, Step{10} * i + j));
    std::string frame;
    append_records(frame, records);
    ASSERT_TRUE(writer.write(frame).ok());
    ASSERT_LE(bytes_in(folder.path()), kLimit) << "at frame " << i;
  }
  ASSERT_TRUE(writer.close().ok());

  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  std::vector<Step> steps;
  while (const TraceRecord* record = trace->next()) steps.push_back(record->step);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), 10 * kFrames - 1);
  EXPECT_GT(steps.front(), 0) << "more was written than the limit holds";
  for (std::size_t i = 1; i < steps.size(); ++i) ASSERT_EQ(steps[i], steps[i - 1] + 1);
  EXPECT_GT(bytes_in(folder.path()), kLimit / 2) << "no more is removed than has to be";
  ASSERT_EQ(trace->missing().size(), 1U);
  EXPECT_EQ(trace->missing()[0].rfind("process 0: its first ", 0), 0U) << trace->missing()[0];
  EXPECT_NE(trace->missing()[0].find("removed to keep --trace-limit"), std::string::npos);

  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const auto index = index_trace_file(entry.path().string());
    ASSERT_TRUE(index.ok());
    EXPECT_EQ(index->clocks.size(), 1U) << "no segment can be read without it: " << entry.path();
  }
}

// Eight processes and some changes of settings for a day. What each segment repeats takes no more
// of the limit than it may, and tells of the whole day.
TEST(TraceFile, WhatSegmentsRepeatDoesNotGrow) {
  constexpr std::uint64_t kLimit = 1 << 20;
  constexpr std::int64_t kSecond = 1000000000, kDay = 86400 * kSecond;
  const TestFolder folder;
  TraceHeader header = header_of(8);
  header.processes = 8;
  TraceFileWriter writer(folder.path(), header, kLimit);
  const auto add = [&](const auto& what, auto append) {
    std::string frame;
    append(frame, what);
    ASSERT_TRUE(writer.write(frame).ok());
    writer.repeat(what);
  };
  std::int64_t begun = 0;
  for (std::int64_t at = 0; at < kDay; at += 30 * kSecond) {
    for (std::int32_t process = 1; process < 8; ++process)
      for (int i = 0; i < 8; ++i) {
        const std::int64_t sent = at + i * 1000000;
        add(ClockSample{process, sent, sent + 5 * kSecond, sent + 300000 + 100000 * (i % 3), 77},
            &append_clock);
      }
    add(SettingsChange{at, {{"lr", std::string(100, 'x')}}}, &append_change);
    std::vector<TraceRecord> records;
    for (int i = 0; i < 512; ++i)
      records.push_back(
          testing_apps::record_of(EventKind::step_done, at + i * kSecond / 20, 0, begun++));
    std::string frame;
    append_records(frame, records);
    ASSERT_TRUE(writer.write(frame).ok());
    ASSERT_LE(bytes_in(folder.path()), kLimit) << "after " << at / kSecond << " s";
  }
  ASSERT_TRUE(writer.close().ok());
  std::int64_t records = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const auto index = index_trace_file(entry.path().string());
    ASSERT_TRUE(index.ok());
    for (const RecordsFrame& frame : index->records) records += frame.head.count;
    for (std::int32_t process = 1; process < 8; ++process) {
      std::vector<std::int64_t> sent;
      for (const ClockSample& sample : index->clocks)
        if (sample.process == process) sent.push_back(sample.sent_ns);
      ASSERT_GE(sent.size(), 16U);
      EXPECT_EQ(sent.front(), 0);
      EXPECT_GT(sent.back(), kDay / 2);
    }
    EXPECT_GT(index->changes.back().time_ns, kDay / 2);
  }
  EXPECT_GT(records, 512 * 100) << "an hour";
}

TEST(TraceFile, AFolderThatIsMissingIsAnErrorOfTheFirstWrite) {
  const TestFolder folder;
  TraceFileWriter writer(folder.path("absent"), header_of(1), 0);
  std::string frame;
  append_pulse(frame, 1);
  const auto written = writer.write(frame);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::io);
  EXPECT_NE(written.error().message.find("absent/process-0000.gvtrace"), std::string::npos);
  EXPECT_TRUE(writer.close().ok());
}

// ---- a disk that refuses ----

std::string step_frame(Step step) {
  std::string frame;
  append_records(frame, {testing_apps::record_of(EventKind::step_done, 10 * step, 0, step)});
  return frame;
}

TEST(TraceFile, AFileOnAFullDiskStaysWholeAndGoesOn) {
  const TestFolder folder;
  TraceFileWriter writer(folder.path(), header_of(1), 0);
  std::vector<Step> written;
  const auto write_steps = [&](Step first, Step end) {
    int refused = 0;
    for (Step step = first; step < end; ++step)
      if (writer.write(step_frame(step)).ok())
        written.push_back(step);
      else
        ++refused;
    return refused;
  };
  int refused = write_steps(0, 10);
  EXPECT_EQ(refused, 0);
  const std::string path = folder.path("process-0000.gvtrace");
  {
    // Half of a frame fits.
    const FileSizeLimit limit(std::filesystem::file_size(path) + step_frame(20).size() / 2);
    refused = write_steps(10, 20);
  }
  EXPECT_EQ(refused, 10);
  EXPECT_EQ(index_trace_file(path)->problem, "");
  EXPECT_EQ(write_steps(20, 30), 0);
  ASSERT_TRUE(writer.close().ok());
  const auto index = index_trace_file(path);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->problem, "");
  EXPECT_TRUE(index->closed);
  std::vector<Step> steps;
  const auto records = read_trace_file(path);
  ASSERT_TRUE(records.ok()) << records.error().message;
  for (const TraceRecord& record : *records) steps.push_back(record.step);
  EXPECT_EQ(steps, written);
  EXPECT_EQ(steps.size(), 20U);
}

TEST(TraceFile, AFileThatCannotBeBegunIsBegunLater) {
  const TestFolder folder;
  TraceFileWriter writer(folder.path(), header_of(1), 0);
  bool begun = true;
  {
    const FileSizeLimit limit(20);
    begun = writer.write(step_frame(0)).ok();
  }
  EXPECT_FALSE(begun);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(writer.write(step_frame(1)).ok());
  ASSERT_TRUE(writer.close().ok());
  const auto records = read_trace_file(folder.path("process-0000.gvtrace"));
  ASSERT_TRUE(records.ok()) << records.error().message;
  EXPECT_EQ(records->size(), 1U);
}

// Pulses were left out, too: that is no pause.
TEST(TraceFile, WhatWasLeftOutIsNoPause) {
  const TestFolder folder;
  std::string bytes = trace_magic();
  append_header(bytes, header_of(1));
  append_pulse(bytes, 50000000);
  append_left_out(bytes, 7);
  append_pulse(bytes, 900000000);
  const std::string path = folder.path("process-0000.gvtrace");
  put(path, bytes);
  const auto index = index_trace_file(path);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->left_out, 7U);
  EXPECT_TRUE(index->pauses.empty());
}

}  // namespace trace_file_test
}  // namespace grapevine
