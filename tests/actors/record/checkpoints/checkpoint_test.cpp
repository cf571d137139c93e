// Checkpoints on disk: what is damaged or does not belong together is named, wherever the damage
// is.
#include "actors/record/checkpoints/checkpoint.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <thread>
#include <tuple>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/checkpoint_keeper.hpp"
#include "actors/record/checkpoints/find_checkpoint.hpp"
#include "tests/apps/process.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace checkpoint_test {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kValues = 4096;

RankSnapshot snapshot(Rank rank, Step step) {
  RankSnapshot snapshot;
  snapshot.rank = rank;
  snapshot.step = step;
  snapshot.state.put("model.step", step);
  snapshot.state.put("model.x", at::arange(kValues, at::kFloat) + static_cast<double>(step));
  snapshot.state.put("name", std::string("any\0bytes", 9));
  return snapshot;
}

void put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class CheckpointFiles : public testing::Test {
 protected:
  void SetUp() override {
    for (const Step step : {5, 6}) {
      const auto written = write(step);
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
  }
  // Of two ranks.
  Expected<std::string> write(Step step) const {
    return write_checkpoint(
        folder_.path(), {{"lr", "0.1"}},
        {1, "step-" + std::to_string(step), {snapshot(0, step), snapshot(1, step)}, {}, {}});
  }
  fs::path file(Step step, int rank) const {
    return folder_.path() / ("step-" + std::to_string(step)) /
           ("rank-000" + std::to_string(rank) + ".pt");
  }
  // One line that names `named`.
  void expect_refused(const std::string& path, const std::string& named, const std::string& text) {
    const auto read = read_checkpoint(path);
    ASSERT_FALSE(read.ok()) << "it was taken as whole";
    EXPECT_EQ(read.error().code, Errc::bad_input);
    EXPECT_NE(read.error().message.find(named), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
  }
  TemporaryDirectory folder_;
};

TEST_F(CheckpointFiles, ComeBackAsTheyWere) {
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->steps(), (std::vector<Step>{6, 6}));
  EXPECT_TRUE(at::equal(*read->ranks[1].tensor("model.x"), at::arange(kValues, at::kFloat) + 6.0));
}

TEST_F(CheckpointFiles, ADamagedByteAnywhereIsNoticed) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const fs::path path = file(6, 1);
  const std::string whole = read_file(path);
  ASSERT_GT(whole.size(), sizeof(float) * kValues);
  for (int round = 0; round < 50; ++round) {
    std::string damaged = whole;
    const std::size_t at = random() % damaged.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    put(path, damaged);
    SCOPED_TRACE("byte " + std::to_string(at));
    expect_refused(folder_.path(), path.filename(), "damaged");
  }
  put(path, whole.substr(0, whole.size() / 2));
  expect_refused(folder_.path(), path.filename(), "damaged");
  put(path, whole);
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
}

TEST_F(CheckpointFiles, FilesOfAnotherCheckpointAreRefused) {
  fs::copy_file(file(5, 1), file(6, 1), fs::copy_options::overwrite_existing);
  expect_refused(folder_.path(), "rank-0001.pt", "of another checkpoint");
  EXPECT_TRUE(read_checkpoint((folder_.path() / "step-5").string()).ok());
  fs::remove(file(6, 1));
  expect_refused(folder_.path(), "rank-0001.pt", "not complete");
  fs::create_directory(file(6, 1));
  expect_refused(folder_.path(), "rank-0001.pt", "no plain file");
}

// With holes: it is longer than any memory.
TEST_F(CheckpointFiles, AFileThatIsTooLongIsNamedBeforeItIsRead) {
  constexpr std::uintmax_t kLong = std::uintmax_t{10} << 40;
  std::error_code error;
  fs::resize_file(file(6, 1), kLong, error);
  if (error) GTEST_SKIP() << "the file system has no files of 10 TiB: " << error.message();
  expect_refused(folder_.path(), "rank-0001.pt", "it has 10995116277760 bytes, not the ");
  const fs::path job = folder_.path() / "step-6" / "job.json";
  json document = json::parse(read_file(job));
  document.erase("files");
  put(job, document.dump());
  expect_refused(folder_.path(), "rank-0001.pt", "for which there is no memory");
}

// Checkpoints of the time before there were checksums.
TEST_F(CheckpointFiles, WithoutChecksumsAreRead) {
  const fs::path job = folder_.path() / "step-6" / "job.json";
  json document = json::parse(read_file(job));
  EXPECT_EQ(document["files"].size(), 2U);
  document.erase("files");
  put(job, document.dump());
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
}

TEST_F(CheckpointFiles, ADamagedJobFileIsNamed) {
  const fs::path job = folder_.path() / "step-6" / "job.json";
  const json whole = json::parse(read_file(job));
  for (const std::string patch :
       {R"([{"op": "remove", "path": "/files/rank-0001.pt"}])",
        R"([{"op": "replace", "path": "/files/rank-0001.pt/crc32", "value": "x"}])",
        R"([{"op": "replace", "path": "/ranks", "value": -1}])",
        R"([{"op": "replace", "path": "/ranks", "value": 1000000000000}])",
        R"([{"op": "replace", "path": "/files", "value": 7}])",
        R"([{"op": "replace", "path": "/job", "value": []}])"}) {
    SCOPED_TRACE(patch);
    put(job, whole.patch(json::parse(patch)).dump());
    expect_refused(folder_.path(), "job.json", "damaged");
  }
}

TEST_F(CheckpointFiles, CountsOfFormerRanksThatNoRunHasAreNamed) {
  const fs::path job = folder_.path() / "step-6" / "job.json";
  json document = json::parse(read_file(job));
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  const auto former = [](std::int64_t rank, std::int64_t produced, std::int64_t committed,
                         std::int64_t dropped) {
    return json{{"rank", rank},
                {"samples", 0},
                {"produced", produced},
                {"committed", committed},
                {"dropped", dropped}};
  };
  // Sums of these, and the rank, have no room in their types.
  for (const json& life : {former(0, kLeast, 1, 0), former(0, 0, kMost, kMost), former(0, 3, 2, 2),
                           former(std::int64_t{1} << 32, 3, 2, 1), former(-1, 3, 2, 1)}) {
    SCOPED_TRACE(life.dump());
    document["former"] = json::array({life});
    put(job, document.dump());
    expect_refused(folder_.path(), "job.json", "damaged: former has");
  }
  document["former"] = json::array({former(1, kMost, kMost - 1, 1)});
  put(job, document.dump());
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
  json life = former(1, 3, 2, 1);
  life.update({{"messages", 7}, {"bytes", 900}, {"staleness", json::array({{0, 2}})}});
  for (const std::string path :
       {"", "/messages", "/bytes", "/staleness/0/0", "/staleness/0/1", "/samples"}) {
    SCOPED_TRACE(path);
    json changed = life;
    if (!path.empty()) changed[json::json_pointer(path)] = -1;
    document["former"] = json::array({changed});
    put(job, document.dump());
    if (path.empty())
      EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
    else
      expect_refused(folder_.path(), "job.json",
                     "damaged: former has a count below 0; use an older checkpoint");
  }
}

TEST_F(CheckpointFiles, WhatChangesOfMembersHaveCostComesBack) {
  WriteCheckpoint order{1, "step-8", {snapshot(0, 8), snapshot(1, 8)}, {}, {}};
  order.batches.left_out = 7;
  order.batches.again = 1;
  order.batches.left_out_runs = {{2, {5, 3, 4}}, {3, {0, 3, 3}}};
  order.batches.again_runs = {{2, {9, 1, 1}}};
  ASSERT_TRUE(write_checkpoint(folder_.path(), {{"lr", "0.1"}}, order).ok());
  const auto read = read_checkpoint(folder_.path() / "step-8");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->batches.left_out, 7);
  EXPECT_EQ(read->batches.again, 1);
  ASSERT_EQ(read->batches.left_out_runs.size(), 2U);
  EXPECT_EQ(read->batches.left_out_runs[1].epoch, 3);
  const BatchRun& run = read->batches.left_out_runs[0].run;
  EXPECT_EQ(std::tie(run.first, run.stride, run.count), std::make_tuple(5, 3, 4));
  ASSERT_EQ(read->batches.again_runs.size(), 1U);
  EXPECT_EQ(read->batches.again_runs[0].run.first, 9);
  const fs::path job = folder_.path() / "step-8" / "job.json";
  const json whole = json::parse(read_file(job));
  for (const std::string path :
       {"/left_out", "/taken_again", "/left_out_runs/0/0", "/left_out_runs/0/1",
        "/left_out_runs/1/2", "/left_out_runs/1/3", "/taken_again_runs/0/1"}) {
    SCOPED_TRACE(path);
    json changed = whole;
    changed["batches"][json::json_pointer(path)] = -1;
    put(job, changed.dump());
    expect_refused(folder_.path() / "step-8", "job.json", "damaged: batches has");
    changed["batches"][json::json_pointer(path)] = "many";
    put(job, changed.dump());
    expect_refused(folder_.path() / "step-8", "job.json", "damaged");
  }
}

// Beside the states of the ranks that have one.
TEST_F(CheckpointFiles, WhatLostRanksHadTakenComesBack) {
  WriteCheckpoint order{1, "step-9", {snapshot(0, 9), snapshot(1, 9)}, {2}, {}};
  order.lost_batches.ahead = {{17, 3, 4}, {40, 2, 1}};
  order.lost_batches.taken = {{2, 11}};
  ASSERT_TRUE(write_checkpoint(folder_.path(), {{"lr", "0.1"}}, order).ok());
  const auto read = read_checkpoint(folder_.path() / "step-9");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->lost_batches.ahead.size(), 2U);
  const BatchRun& run = read->lost_batches.ahead[0];
  EXPECT_EQ(std::tie(run.first, run.stride, run.count), std::make_tuple(17, 3, 4));
  EXPECT_EQ(read->taken().at(2), 11) << "it has no state that says so";
  const fs::path job = folder_.path() / "step-9" / "job.json";
  const json whole = json::parse(read_file(job));
  for (const std::string path :
       {"/ahead/0/0", "/ahead/0/1", "/ahead/1/2", "/taken/0/0", "/taken/0/1"})
    for (const json& value : {json(-1), json(std::int64_t{1} << 60), json("many"), json()}) {
      SCOPED_TRACE(path + ": " + value.dump());
      json changed = whole;
      changed["lost_batches"][json::json_pointer(path)] = value;
      put(job, changed.dump());
      expect_refused(folder_.path() / "step-9", "job.json", "damaged");
    }
}

// Compared with the file as an unsigned number it would be about 2^64.
TEST_F(CheckpointFiles, ALengthBelow0IsNamed) {
  const fs::path job = folder_.path() / "step-6" / "job.json";
  const json whole = json::parse(read_file(job));
  for (const std::string number : {"bytes", "crc32"}) {
    SCOPED_TRACE(number);
    json document = whole;
    document["files"]["rank-0001.pt"][number] = -1;
    put(job, document.dump());
    expect_refused(folder_.path(), "job.json",
                   "damaged: files has a number below 0 for rank-0001.pt; use an older checkpoint");
  }
}

TEST_F(CheckpointFiles, HalfWrittenOnesOfKilledRunsAreRemoved) {
  fs::create_directories(folder_.path() / ".writing-step-7" / "deep");
  remove_stale_checkpoints(folder_.path());
  EXPECT_FALSE(fs::exists(folder_.path() / ".writing-step-7"));
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
}

// Killed between moving the old one away and giving the new one its name, or just after.
TEST_F(CheckpointFiles, TheOneThatMadeRoomComesBackWhereNothingTookItsPlace) {
  fs::rename(folder_.path() / "step-6", folder_.path() / ".replaced-step-6");
  // It is found before that: a run looks for its checkpoint before the folder is its own.
  const auto found = read_checkpoint(folder_.path());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_FALSE(checkpoint_at(folder_.path()).empty());
  remove_stale_checkpoints(folder_.path());
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(own_name_of(found->path), read->path);
  EXPECT_EQ(own_name_of(read->path), read->path);
  fs::create_directories(folder_.path() / ".replaced-step-6");
  remove_stale_checkpoints(folder_.path());
  EXPECT_FALSE(fs::exists(folder_.path() / ".replaced-step-6"));
  EXPECT_TRUE(read_checkpoint(folder_.path()).ok());
}

// The newest of those that are whole.
TEST_F(CheckpointFiles, ALinkToNothingIsNoEnd) {
  const fs::path newest = folder_.path() / "epoch-0002", half = folder_.path() / ".writing-final";
  fs::copy(folder_.path() / "step-6", newest, fs::copy_options::recursive);
  fs::copy(newest, half, fs::copy_options::recursive);
  const auto now = fs::file_time_type::clock::now();
  for (const char* older : {"step-5", "step-6"})
    fs::last_write_time(folder_.path() / older / "job.json", now - std::chrono::hours(1));
  fs::last_write_time(half / "job.json", now + std::chrono::hours(1));
  fs::remove(folder_.path() / "latest");
  EXPECT_EQ(read_checkpoint(folder_.path())->path, fs::canonical(newest)) << "no link at all";
  fs::create_directory_symlink("final", folder_.path() / "latest");
  const auto read = read_checkpoint(folder_.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->path, fs::canonical(newest));
}

// By a program that leaves links out, and sets the times of copying.
TEST_F(CheckpointFiles, ACopyWithoutLinksIsTakenByItsSteps) {
  fs::remove(folder_.path() / "latest");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(folder_.path() / "step-6" / "job.json", now - std::chrono::hours(1));
  fs::create_directory(folder_.path() / "other");
  put(folder_.path() / "other" / "job.json", "{}");
  const TemporaryDirectory run;
  fs::copy(folder_.path(), run.path() / "checkpoint", fs::copy_options::recursive);
  fs::last_write_time(run.path() / "checkpoint/step-6/job.json", now - std::chrono::hours(1));
  put(run.path() / "checkpoint/latest", "step-6");  // a link as a file
  for (const fs::path& path : {folder_.path(), run.path()}) {
    const auto read = read_checkpoint(path);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(fs::path(read->path).filename(), "step-6");
  }
  fs::resize_file(file(6, 1), 10);
  EXPECT_EQ(fs::path(checkpoint_at(folder_.path())).filename(), "step-5") << "it is complete";
  fs::remove(file(5, 0));
  expect_refused(folder_.path(), "rank-0001.pt", "10 bytes");
}

// Those that are removed amid their reading, as by a run to which a process returns.
TEST_F(CheckpointFiles, TheNextOneIsReadWhereOneEndsAmidItsReading) {
  const auto next = [this](Step step) {
    return write_checkpoint(folder_.path(), {{"lr", "0.1"}},
                            {1, "step-" + std::to_string(step), {snapshot(0, step)}, {}, {}})
        .ok();
  };
  Step step = 6;
  const auto read = read_newest(folder_.path(), [&](const std::string& folder) {
    if (step < 9) {
      EXPECT_TRUE(next(++step));
      fs::remove_all(folder);
    }
    return read_checkpoint(folder);
  });
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->steps(), std::vector<Step>{9});
}

// The files of one checkpoint, in whatever order threads run.
TEST_F(CheckpointFiles, AreReadWhileARunReplacesThem) {
  std::atomic<bool> is_over{false};
  std::thread run([&] {
    CheckpointKeeper keeper(folder_.path(), KeptCheckpoints{false, false, 1}, false);
    for (Step step = 7; !is_over; ++step) {
      const auto written = write(step);
      EXPECT_TRUE(written.ok()) << written.error().message;
      if (!written) is_over = true;
      if (written) keeper.on_checkpoint(*written);
    }
  });
  Step newest = 0;
  for (int reads = 0; !is_over && (reads < 200 || newest < 20); ++reads) {
    const auto read = read_checkpoint(folder_.path());
    EXPECT_TRUE(read.ok()) << read.error().message;
    if (!read) break;
    EXPECT_EQ(read->steps()[0], read->steps()[1]);
    newest = read->steps()[0];
  }
  is_over = true;
  run.join();
}

// A pipe would block its reader.
TEST_F(CheckpointFiles, APipeIsNoFile) {
  fs::remove(file(6, 0));
  ASSERT_EQ(::mkfifo(file(6, 0).c_str(), 0600), 0);
  expect_refused(folder_.path(), "rank-0000.pt", "no plain file");
  const fs::path job = folder_.path() / "step-6" / "job.json";
  fs::remove(job);
  ASSERT_EQ(::mkfifo(job.c_str(), 0600), 0);
  expect_refused(folder_.path(), "job.json", "no plain file");
  const fs::path text = folder_.path() / "step-5" / kJobFileName;
  ASSERT_EQ(::mkfifo(text.c_str(), 0600), 0);
  EXPECT_FALSE(read_marked_file(text.parent_path(), kJobFileName));
}

TEST_F(CheckpointFiles, TheJobFileHasAChecksum) {
  const std::string name = kJobFileName;
  const auto written =
      write_checkpoint(folder_.path(), {{"lr", "0.1"}}, {1, "step-7", {snapshot(0, 7)}, {}, {}}, {},
                       "", "lr = 0.1\nsteps = 9\n");
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto whole = read_marked_file(*written, name);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(*whole, "lr = 0.1\nsteps = 9\n");
  put(fs::path(*written) / name, "lr = 0.1\n");
  EXPECT_FALSE(read_marked_file(*written, name));
  // Earlier versions wrote none.
  const fs::path older = folder_.path() / "step-5";
  put(older / name, "lr = 0.1\n");
  EXPECT_TRUE(read_marked_file(older, name));
}

}  // namespace checkpoint_test
}  // namespace grapevine
