// The folder of the shards: its proof, and files that grow part after part.
#include "actors/record/shards/shard_folder.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/state_bytes.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace shard_folder_test {

namespace fs = std::filesystem;

class ShardFolderTest : public testing::Test {
 protected:
  ShardFolderTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  static FrozenTensor part(const std::string& text) {
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
    return FrozenTensor::freeze(std::move(bytes));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "shards";
  ShardFolder shards_;
};

TEST_F(ShardFolderTest, ProvesItselfToItsRunAlone) {
  const fs::path path = shard_folder(folder_.string(), 3);
  EXPECT_FALSE(has_proof(path, "1"));
  ASSERT_TRUE(shards_.open(path, "1").ok());
  EXPECT_TRUE(has_proof(path, "1"));
  EXPECT_FALSE(has_proof(path, "2"));
  shards_.remove();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(ShardFolderTest, AFileHasItsNameOnceItIsWhole) {
  const fs::path path = shard_folder(folder_.string(), 3), file = path / "rank-0005.pt";
  ASSERT_TRUE(shards_.open(path, "1").ok());
  EXPECT_EQ(*shards_.store(5, 0, 6, part("abcd")), 4);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(*shards_.store(6, 0, 6, part("xyz")), 3);
  EXPECT_EQ(*shards_.store(5, 4, 6, part("ef")), 6);
  EXPECT_EQ(read_file(file), "abcdef");
}

TEST_F(ShardFolderTest, APartThatDoesNotFollowIsRefused) {
  EXPECT_FALSE(shards_.store(5, 0, 6, part("abcd")).ok()) << "no folder is open";
  ASSERT_TRUE(shards_.open(shard_folder(folder_.string(), 3), "1").ok());
  for (const auto& [offset, total] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 6}, {-1, 6}, {0, 3}, {0, -5}}) {
    const auto stored = shards_.store(5, offset, total, part("abcd"));
    ASSERT_FALSE(stored.ok()) << offset << " of " << total;
    EXPECT_EQ(stored.error().code, Errc::protocol);
  }
  EXPECT_FALSE(shards_.store(5, 0, 4, FrozenTensor::freeze(at::zeros({4}))).ok());
  EXPECT_FALSE(shards_.store(5, 0, 4, FrozenTensor()).ok());
  EXPECT_EQ(*shards_.store(5, 0, 4, part("abcd")), 4);
  EXPECT_FALSE(shards_.store(5, 4, 4, part("e")).ok());
}

// A cut that was given up leaves nothing to the next one.
TEST_F(ShardFolderTest, ANewCutBeginsEmpty) {
  const fs::path first = shard_folder(folder_.string(), 3),
                 second = shard_folder(folder_.string(), 4);
  ASSERT_TRUE(shards_.open(first, "1").ok());
  ASSERT_TRUE(shards_.store(5, 0, 6, part("abcd")).ok());
  ASSERT_TRUE(shards_.open(second, "1").ok());
  EXPECT_FALSE(fs::exists(first));
  EXPECT_EQ(*shards_.store(5, 0, 4, part("abcd")), 4);
}

// The state of rank 0 comes from here, that of rank 1 is a shard.
class CheckpointOfShards : public ShardFolderTest {
 protected:
  CheckpointOfShards() {
    state_.put("model.step", std::int64_t{7});
    bytes_ = to_bytes(state_);
    EXPECT_TRUE(shards_.open(shard_folder(folder_.string(), 1), "1").ok());
  }
  Expected<std::string> write(const std::string& name) {
    const WriteCheckpoint order{
        1, name, {{1, 0, 7, state_, std::nullopt}, {1, 1, 7, {}, mark_of(bytes_)}}, {}, {}};
    return write_checkpoint(folder_.string(), {{"lr", "0.1"}}, order, {}, shards_.path().string());
  }
  void store(std::size_t bytes) {
    const std::string text(bytes_.data(), bytes);
    ASSERT_TRUE(shards_.store(1, 0, static_cast<std::int64_t>(bytes), part(text)).ok());
  }

  StateDict state_;
  std::vector<char> bytes_;
};

TEST_F(CheckpointOfShards, ReadsAsAnyOther) {
  store(bytes_.size());
  const auto path = write("one");
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto checkpoint = read_checkpoint(folder_.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->steps(), (std::vector<Step>{7, 7}));
}

TEST_F(CheckpointOfShards, AMissingOrShortShardLeavesTheOneBeforeIntact) {
  store(bytes_.size());
  ASSERT_TRUE(write("one").ok());
  ASSERT_TRUE(shards_.open(shard_folder(folder_.string(), 2), "1").ok());
  EXPECT_FALSE(write("two").ok()) << "nothing was stored";
  ASSERT_TRUE(shards_.open(shard_folder(folder_.string(), 3), "1").ok());
  store(bytes_.size() - 1);
  const auto cut = write("three");
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(cut.error().message.find("its writer wrote"), std::string::npos);
  const auto checkpoint = read_checkpoint(folder_.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(fs::path(checkpoint->path).filename(), "one");
}

// As a run leaves it that is killed before the last state is there.
TEST_F(CheckpointOfShards, TheNextRunRemovesWhatAKilledOneLeft) {
  store(bytes_.size());
  ASSERT_TRUE(write("one").ok());
  ASSERT_TRUE(shards_.open(shard_folder(folder_.string(), 2), "1").ok());
  store(bytes_.size());
  remove_stale_checkpoints(folder_.string());
  EXPECT_FALSE(fs::exists(shard_folder(folder_.string(), 2)));
  EXPECT_TRUE(read_checkpoint(folder_.string()).ok());
}

}  // namespace shard_folder_test
}  // namespace grapevine
