// States go into a folder that is shared with process 0, and elsewhere in parts to it.
#include "actors/record/shards/shard_writer.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "actors/record/shards/cut_transfer.hpp"
#include "actors/record/shards/shard_folder.hpp"
#include "actors/run/state_bytes.hpp"
#include "net/inproc/inproc.hpp"
#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace shard_writer_test {

namespace fs = std::filesystem;

struct Parts : Inbox {
  void deliver(Envelope envelope) override { envelopes.push_back(std::move(envelope)); }
  void peer_down(Rank, const std::string&) override {}
  std::vector<Envelope> envelopes;
};

class ShardWriterTest : public VirtualActors {
 protected:
  ShardWriterTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    EXPECT_TRUE(transport_->attach(0, head_).ok());
    EXPECT_TRUE(transport_->attach(1, next_).ok());
    EXPECT_TRUE(transport_->attach(3, std::make_shared<Parts>()).ok());
    writer_ =
        system_.spawn(shard_writer, ShardWriterConfig{transport_, played<SupervisorActor>(), "1"});
  }
  ~ShardWriterTest() override {
    for (const Rank rank : {0, 1, 3}) transport_->detach(rank);
    kill(writer_);
  }

  std::optional<StateStored> stored() {
    settle();
    std::optional<StateStored> stored;
    self_->receive([&](const StateStored& came) { stored = came; },
                   caf::after(std::chrono::seconds(0)) >> [] {});
    return stored;
  }
  void store(std::int64_t cut, std::int64_t elements = 3, Rank receiver = 0) {
    StateDict state;
    state.put("x", at::arange(elements, at::kFloat));
    bytes_ = to_bytes(state);
    store_state(cut, std::move(state), receiver);
  }
  void store_state(std::int64_t cut, StateDict state, Rank receiver = 0) {
    self_->send(writer_, StoreState{RankSnapshot{cut, 3, 9, std::move(state), std::nullopt},
                                    shard_folder(folder_.string(), cut).string(), receiver});
  }
  void expect_stored(std::int64_t cut) {
    const auto stored = this->stored();
    ASSERT_TRUE(stored);
    EXPECT_EQ(stored->id, cut);
    EXPECT_EQ(stored->rank, 3);
    EXPECT_EQ(stored->step, 9);
    EXPECT_TRUE((FileMark{stored->bytes, stored->crc32}) == mark_of(bytes_));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "shard-writer";
  const std::shared_ptr<Transport> transport_ = make_inproc_transport(4);
  const std::shared_ptr<Parts> head_ = std::make_shared<Parts>();
  const std::shared_ptr<Parts> next_ = std::make_shared<Parts>();  // of process 0, too
  ShardWriterActor writer_;
  std::vector<char> bytes_;
};

TEST_F(ShardWriterTest, WritesIntoAFolderWithTheProofOfItsRun) {
  ShardFolder shards;
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 1), "1").ok());
  store(1);
  expect_stored(1);
  std::ifstream file(shards.path() / "rank-0003.pt", std::ios::binary);
  EXPECT_EQ(std::vector<char>(std::istreambuf_iterator<char>(file), {}), bytes_);
  EXPECT_TRUE(head_->envelopes.empty());
}

// The proof may come late.
TEST_F(ShardWriterTest, WaitsForTheProof) {
  store(1);
  pass(1);
  ShardFolder shards;
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 1), "1").ok());
  pass(1);
  expect_stored(1);
}

// The folder of another run is no proof. Parts follow as the receiver stores them.
TEST_F(ShardWriterTest, SendsPartsWhereTheFolderIsNotShared) {
  ShardFolder foreign;
  ASSERT_TRUE(foreign.open(shard_folder(folder_.string(), 1), "2").ok());
  for (std::int64_t cut = 1; cut <= 2; ++cut) {
    store(cut, 6 * StateStream::kPart / 4);
    pass(cut == 1 ? 60 : 0);
    std::vector<char> arrived;
    while (arrived.size() < bytes_.size()) {
      settle();
      ASSERT_FALSE(head_->envelopes.empty());
      ASSERT_LE(head_->envelopes.size(), 4U);
      const std::vector<Envelope> parts = std::exchange(head_->envelopes, {});
      for (const Envelope& envelope : parts) {
        EXPECT_EQ(envelope.from, 3);
        const auto& part = std::get<StateChunk>(envelope.payload);
        EXPECT_EQ(cut_of(part), cut);
        const auto* data = static_cast<const char*>(part.data.raw());
        arrived.insert(arrived.end(), data, data + part.data.numel());
      }
      self_->send(writer_, PartStored{cut - 1, 3, 5});  // of another cut
      self_->send(writer_, PartStored{cut, 3, static_cast<std::int64_t>(arrived.size())});
    }
    EXPECT_EQ(arrived, bytes_);
    expect_stored(cut);
  }
}

// A network file system may show a new folder late: that costs no checkpoint, and the next one is
// written there again.
TEST_F(ShardWriterTest, SendsPartsWhereASharedFolderIsNotSeen) {
  ShardFolder shards;
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 1), "1").ok());
  store(1);
  expect_stored(1);
  shards.remove();
  store(2);
  pass(60);
  settle();
  ASSERT_EQ(head_->envelopes.size(), 1U);
  EXPECT_EQ(cut_of(std::get<StateChunk>(head_->envelopes[0].payload)), 2);
  self_->send(writer_, PartStored{2, 3, static_cast<std::int64_t>(bytes_.size())});
  expect_stored(2);
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 3), "1").ok());
  store(3);
  expect_stored(3);
  EXPECT_EQ(head_->envelopes.size(), 1U);
}

// Rank 0 may have left.
TEST_F(ShardWriterTest, SendsPartsToTheRankThatReceivesThem) {
  store(1, 3, 1);
  pass(60);
  settle();
  EXPECT_TRUE(head_->envelopes.empty());
  ASSERT_EQ(next_->envelopes.size(), 1U);
  EXPECT_EQ(next_->envelopes[0].to, 1);
}

// A state that cannot be written costs that checkpoint, not those after it. This one has no values
// that could be copied.
TEST_F(ShardWriterTest, RefusesAStateThatItCannotWriteAndStays) {
  ShardFolder shards;
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 1), "1").ok());
  StateDict state;
  state.put("x", at::empty({3}, at::TensorOptions().device(at::kMeta)));
  store_state(1, std::move(state));
  settle();
  std::optional<SnapshotRefused> refused;
  self_->receive([&](const SnapshotRefused& came) { refused = came; },
                 caf::after(std::chrono::seconds(0)) >> [] {});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->id, 1);
  EXPECT_EQ(refused->rank, 3);
  EXPECT_EQ(refused->reason.rfind("the state of rank 3: ", 0), 0U) << refused->reason;
  ASSERT_TRUE(shards.open(shard_folder(folder_.string(), 2), "1").ok());
  store(2);
  expect_stored(2);
}

}  // namespace shard_writer_test
}  // namespace grapevine
