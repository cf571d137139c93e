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
  CheckpointKeeper best(folder.path(), *parse_kept_checkpoints("best"));
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
  CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints("best"));
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

TEST(CheckpointKeep, KeepsANumberOrAll) {
  for (const auto& [keep, left] : std::map<std::string, int>{{"2", 2}, {"all", 5}, {"1", 1}}) {
    const TemporaryDirectory folder;
    CheckpointKeeper keeper(folder.path(), *parse_kept_checkpoints(keep));
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
