// TensorBoard's event files, read back as TensorBoard reads them.
#include "apps/monitoring/event_file.hpp"

#include <gtest/gtest.h>
#include <tensorboard_event.pb.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "apps/monitoring/tensorboard_log.hpp"
#include "tests/apps/process.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace event_file_test {

namespace fs = std::filesystem;
using tensorboard::Event;

// CRC-32C bit by bit, masked.
std::uint32_t masked(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

std::uint64_t little_endian(const std::string& bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i)
    value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

std::vector<Event> events_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<Event> events;
  for (std::size_t at = 0; at < all.size();) {
    const std::string length = all.substr(at, 8);
    const auto size = static_cast<std::size_t>(little_endian(length));
    EXPECT_EQ(little_endian(all.substr(at + 8, 4)), masked(length));
    const std::string payload = all.substr(at + 12, size);
    EXPECT_EQ(payload.size(), size);
    EXPECT_EQ(little_endian(all.substr(at + 12 + size, 4)), masked(payload));
    Event event;
    EXPECT_TRUE(event.ParseFromString(payload));
    events.push_back(event);
    at += 16 + size;
  }
  return events;
}

fs::path only_file_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1U) << folder;
  return files.empty() ? fs::path() : files.front();
}

StepReport report_of(Rank rank, Step step, double loss) {
  StepReport report;
  report.rank = rank;
  report.step = step;
  report.loss = loss;
  report.top1 = std::numeric_limits<double>::quiet_NaN();
  return report;
}

TEST(EventFile, ChecksumIsTheStandardOne) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU) << "RFC 3720, appendix B.4";
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFile, GrowsByWholeRecordsThatReadBack) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "run" / "events.out.tfevents.1.host";
  EventFile file(path, 100.5, 7);
  EXPECT_FALSE(fs::exists(path)) << "nothing before the first flush";
  file.add(101, 7, {{"a", 0.25}, {"b", std::nan("")}});
  file.add(101, 8, {{"b", std::nan("")}});
  ASSERT_TRUE(file.flush().ok());
  ASSERT_EQ(events_of(path).size(), 3U);
  file.add(102, 9, {{"a", 0}});
  ASSERT_TRUE(file.flush().ok());
  const auto events = events_of(path);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 7);
  ASSERT_EQ(events[2].summary().value_size(), 1) << "what was not measured is left out";
  EXPECT_EQ(events[2].summary().value(0).tag(), "a");
  EXPECT_EQ(events[2].summary().value(0).simple_value(), 0.25F);
  EXPECT_EQ(events[3].step(), 9);
  EXPECT_EQ(events[3].summary().value(0).value_case(), tensorboard::Scalar::kSimpleValue)
      << "0 is a value";
  EXPECT_EQ(events[3].wall_time(), 102);
}

TEST(EventFile, StaysWholeOverADiskThatWasFull) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "events";
  EventFile file(path, 100, 0);
  file.add(100, 0, {{"a", 1}});
  ASSERT_TRUE(file.flush().ok());
  const std::uintmax_t size = fs::file_size(path);
  {
    const FileSizeLimit full(size + 200);
    for (Step step = 1; step <= 100; ++step) file.add(101, step, {{"a", 1}});
    EXPECT_FALSE(file.flush().ok());
    EXPECT_EQ(fs::file_size(path), size) << "no part of a record remains";
    file.add(102, 101, {{"a", 1}});
    EXPECT_FALSE(file.flush().ok());
  }
  file.add(103, 102, {{"a", 1}});
  ASSERT_TRUE(file.flush().ok());
  const auto events = events_of(path);
  ASSERT_EQ(events.size(), 2U + 103U);
  for (Step step = 0; step <= 102; ++step)
    EXPECT_EQ(events[static_cast<std::size_t>(step) + 2].step(), step);
}

// What a full disk does not take is kept in memory only up to a limit.
TEST(EventFile, KeepsNotMoreThanItsLimitForAFullDisk) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "events";
  EventFile file(path, 100, 0);
  ASSERT_TRUE(file.flush().ok());
  {
    const FileSizeLimit full(fs::file_size(path));
    for (Step step = 0; step < 100'000; ++step) {
      file.add(101, step, {{"a", 1}});
      if (step % 1000 == 0) {
        EXPECT_FALSE(file.flush().ok());
      }
    }
  }
  ASSERT_TRUE(file.flush().ok());
  EXPECT_LT(fs::file_size(path), 2'000'000U);
  const auto events = events_of(path);
  EXPECT_GT(events.size(), 1000U);
  EXPECT_EQ(events[2].step(), 0) << "the first ones";
}

TEST(EventFile, SaysWhatCannotBeWritten) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "run") << "a file where a folder should be";
  EventFile file(folder.path() / "run" / "events", 0, 0);
  const auto flushed = file.flush();
  ASSERT_FALSE(flushed.ok());
  EXPECT_NE(flushed.error().message.find("run/events"), std::string::npos);
}

TEST(TensorBoardLog, HasARunForEachRankAndOneForValidation) {
  const TemporaryDirectory folder;
  std::vector<std::string> warnings;
  auto log = *TensorBoardLog::create(folder.path() / "tensorboard", {40, 50},
                                     [&](const std::string& text) { warnings.push_back(text); });
  StepReport unlogged = report_of(0, 41, 9);
  unlogged.logged = false;
  log->on_step(report_of(0, 40, 0.5));
  log->on_step(unlogged);
  log->on_step(report_of(1, 50, 0.75));
  log->on_validation(3, 41, {0.125, 0.75, 0.875, 100});
  log->on_end();
  EXPECT_TRUE(warnings.empty());
  const auto zero = events_of(only_file_in(folder.path() / "tensorboard/rank-0000"));
  const auto one = events_of(only_file_in(folder.path() / "tensorboard/rank-0001"));
  const auto validation = events_of(only_file_in(folder.path() / "tensorboard/validation"));
  ASSERT_EQ(zero.size(), 3U) << "steps that are not logged are not there";
  EXPECT_EQ(zero[1].step(), 40);
  EXPECT_EQ(zero[2].summary().value(0).tag(), "train/loss");
  EXPECT_EQ(zero[2].summary().value(0).simple_value(), 0.5F);
  ASSERT_EQ(one.size(), 3U);
  EXPECT_EQ(one[1].step(), 50) << "where this rank's part of the run begins";
  EXPECT_EQ(one[2].step(), 50);
  ASSERT_EQ(validation.size(), 3U);
  EXPECT_EQ(validation[2].step(), 41);
  EXPECT_EQ(validation[2].summary().value(1).tag(), "validation/top1");
  EXPECT_EQ(validation[2].summary().value(1).simple_value(), 0.75F);
}

TEST(TensorBoardLog, WarnsOnceWhereItCannotWrite) {
  const TemporaryDirectory folder;
  std::vector<std::string> warnings;
  auto log = *TensorBoardLog::create(folder.path(), {},
                                     [&](const std::string& text) { warnings.push_back(text); });
  std::ofstream(folder.path() / "rank-0000") << "in the way";
  for (Step step = 0; step < 3; ++step) {
    log->on_step(report_of(0, step, 1));
    log->on_checkpoint();
  }
  log->on_end();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("rank-0000"), std::string::npos) << warnings[0];
}

}  // namespace event_file_test
}  // namespace grapevine
