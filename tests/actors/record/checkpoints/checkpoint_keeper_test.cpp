// Which checkpoints a run keeps.
#include "actors/record/checkpoints/checkpoint_keeper.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/apps/process.hpp"

namespace grapevine {
namespace checkpoint_keeper_test {

namespace fs = std::filesystem;

TEST(CheckpointKeep, KeepsTheNewestAndTheBest) {
  const TemporaryDirectory folder;
  const auto write = [&](int number) {
    const fs::path path = folder.path() / ("epoch-000" + std::to_string(number));
    fs::create_directories(path);
    std::ofstream(path / "job.json") << "{}";
    return path.string();
  };
  const auto names = [&] {
    std::string all;
    for (int i = 1; i <= 9; ++i)
      if (fs::exists(folder.path() / ("epoch-000" + std::to_string(i)))) all += std::to_string(i);
    return all;
  };
  const auto evaluation = [](double loss, double top1) {
    Evaluation made;
    made.loss = loss;
    made.top1 = top1;
    return made;
  };
  CheckpointKeeper best(folder.path(), *parse_kept_checkpoints("best"), true);
  best.on_checkpoint(write(1));
  best.on_validation(0, evaluation(1, 0.5));
  best.on_checkpoint(write(2));
  EXPECT_EQ(names(), "12");
  best.on_validation(1, evaluation(2, 0.9));
  EXPECT_EQ(names(), "2");
  best.on_checkpoint(write(3));
  best.on_checkpoint(write(4));  // before the validation of the third epoch
  EXPECT_EQ(names(), "234");
  best.on_validation(2, evaluation(0.1, 0.7));
  EXPECT_EQ(names(), "24");
  best.on_validation(3, evaluation(0.1, 0.8));
  best.on_checkpoint(write(5));
  EXPECT_EQ(names(), "25");
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "epoch-0002");
}

// The checkpoint of the end is that of the last epoch.
TEST(CheckpointKeep, TheLastOneMayBeTheBest) {
  const TemporaryDirectory folder;
  CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints("best"), true);
  for (const char* name : {"epoch-0001", "final"}) {
    fs::create_directories(folder.path() / name);
    keeper.on_checkpoint((folder.path() / name).string());
  }
  Evaluation first, last;
  first.top1 = 0.5;
  last.top1 = 0.6;
  keeper.on_validation(0, first);
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "epoch-0001");
  keeper.on_validation(1, last);
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "final");
  EXPECT_FALSE(fs::exists(folder.path() / "epoch-0001"));
}

// Nothing judges them: only the newest one is kept.
TEST(CheckpointKeep, WaitsForNoValidationsWhereNoneCome) {
  const TemporaryDirectory folder;
  CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints("best"), false);
  for (int i = 1; i <= 5; ++i) {
    const fs::path path = folder.path() / ("epoch-000" + std::to_string(i));
    fs::create_directories(path);
    keeper.on_checkpoint(path.string());
    EXPECT_TRUE(fs::exists(path));
    EXPECT_FALSE(fs::exists(folder.path() / ("epoch-000" + std::to_string(i - 1)))) << i;
  }
}

class ALongerRun : public ::testing::Test {
 public:
  // The run before had three epochs, the last of which was the best.
  ALongerRun() {
    write("final");
    for (Epoch epoch = 0; epoch < 3; ++epoch)
      before_[epoch].top1 = 0.8 + 0.05 * static_cast<double>(epoch);
    for (const char* name : {"latest", "best"})
      fs::create_directory_symlink("final", folder_.path() / name);
    keeper_.add_earlier(before_, (folder_.path() / "final").string(), true);
  }

  std::string write(const std::string& name) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path);
    std::ofstream(path / "job.json") << "{}";
    return path.string();
  }
  void add(const std::string& name) {
    keeper_.before_checkpoint(name);
    keeper_.on_checkpoint(write(name));
  }
  bool has(const std::string& name) const { return fs::exists(folder_.path() / name); }
  fs::path link(const std::string& name) const { return fs::read_symlink(folder_.path() / name); }

 protected:
  const TemporaryDirectory folder_;
  std::map<Epoch, Evaluation> before_;
  CheckpointKeeper keeper_{folder_.path(), *parse_kept_checkpoints("best"), true};
};

TEST_F(ALongerRun, KeepsTheBestOneOfTheRunBefore) {
  Evaluation worse, best;
  worse.top1 = 0.88;
  best.top1 = 0.95;
  add("epoch-0004");
  keeper_.on_validation(3, worse);
  EXPECT_TRUE(has("epoch-0003"));
  EXPECT_FALSE(has("final"));
  EXPECT_EQ(link("best"), "epoch-0003");
  add("final");
  keeper_.on_validation(4, worse);
  EXPECT_TRUE(has("epoch-0003"));
  EXPECT_TRUE(has("final"));
  EXPECT_FALSE(has("epoch-0004"));
  EXPECT_EQ(link("best"), "epoch-0003");
  keeper_.on_validation(4, best);
  EXPECT_EQ(link("best"), "final");
  EXPECT_FALSE(has("epoch-0003"));
}

// Without one of the epochs in between; at every moment the newest one is there.
TEST_F(ALongerRun, KeepsItWhereTheNextOneHasItsName) {
  keeper_.before_checkpoint("final");
  EXPECT_EQ(link("latest"), "epoch-0003");
  EXPECT_EQ(link("best"), "epoch-0003");
  EXPECT_TRUE(has("latest"));
  keeper_.on_checkpoint(write("final"));
  Evaluation worse;
  worse.top1 = 0.5;
  keeper_.on_validation(4, worse);
  EXPECT_TRUE(has("final"));
  EXPECT_TRUE(has("epoch-0003"));
  EXPECT_EQ(link("best"), "epoch-0003");
}

// A run that was at its end is continued to that end.
TEST(CheckpointKeep, TheSameEndKeepsItsName) {
  const TemporaryDirectory folder;
  const fs::path final_one = folder.path() / "final";
  fs::create_directories(final_one);
  std::ofstream(final_one / "job.json") << "{}";
  CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints("best"), true);
  keeper.add_earlier({{0, {}}, {1, {}}}, final_one.string(), false);
  keeper.before_checkpoint("final");
  EXPECT_TRUE(fs::exists(final_one));
  keeper.on_checkpoint(final_one.string());
  EXPECT_EQ(fs::read_symlink(folder.path() / "best"), "final");
}

TEST(CheckpointKeep, KeepsANumberOrAll) {
  for (const auto& [keep, left] : std::map<std::string, int>{{"2", 2}, {"all", 5}, {"1", 1}}) {
    const TemporaryDirectory folder;
    CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints(keep), true);
    for (int i = 1; i <= 5; ++i) {
      const fs::path path = folder.path() / ("epoch-000" + std::to_string(i));
      fs::create_directories(path);
      keeper.on_checkpoint(path.string());
    }
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) count += entry.is_directory();
    EXPECT_EQ(count, left) << keep;
    EXPECT_TRUE(fs::exists(folder.path() / "epoch-0005"));
  }
  for (const char* wrong : {"0", "-1", "some", "", "2x"})
    EXPECT_FALSE(parse_kept_checkpoints(wrong));
}

TEST(CheckpointKeep, GoesByTheLossWhereThereIsNoAccuracy) {
  Evaluation low, high;
  low.loss = 1;
  high.loss = 2;
  low.top1 = high.top1 = std::nan("");
  EXPECT_TRUE(better(low, high));
  EXPECT_FALSE(better(high, low));
  EXPECT_FALSE(better(low, low));
}

}  // namespace checkpoint_keeper_test
}  // namespace grapevine
