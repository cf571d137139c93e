// Models are fetched part after part, over the transport, at the pace of their receiver.
#include "actors/run/models/model_fetcher.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "tests/actors/run/models/fetched_models.hpp"

namespace grapevine {
namespace model_fetcher_test {

FrozenTensor random_vector(std::int64_t elements) {
  return elements == 0 ? FrozenTensor() : FrozenTensor::freeze(at::randn({elements}));
}

class ModelFetcherTest : public FetchedModels {
 protected:
  // The answer comes later: answers_ then has it under `key`.
  void fetch(int key, const FetchModel& order) {
    auto asker = system_.spawn([this, key, order](caf::event_based_actor* self) {
      self->request(fetcher_, caf::infinite, order).then([this, key](const FetchedModel& fetched) {
        answers_[key] = fetched;
      });
    });
    settle();
  }
  // `useless`: elements on their way for fetches that have ended.
  void deliver_all(std::uint64_t seed, std::int64_t useless = 0) {
    std::mt19937_64 random(seed);
    while (deliver_one(random)) EXPECT_LE(elements_out(), kMostOut + useless);
  }

  static constexpr std::int64_t kMostOut = ModelFetcherState::kMostElements;
  std::map<int, FetchedModel> answers_;
};

// Any ranges of any models, and parts in any order.
TEST_F(ModelFetcherTest, FetchesTheNumbersOfEveryRange) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    at::manual_seed(seed);
    std::mt19937_64 random(seed);
    std::map<int, at::Tensor> expected;
    answers_.clear();
    for (int key = 0; key < 12; ++key) {
      const Rank rank = 1 + key % (kRanks - 1);  // fewer than are kept of each
      const bool large = random() % 4 == 0;
      const auto d = static_cast<std::int64_t>(random() % (large ? 5 * kMostModelPart : 50));
      const auto b = static_cast<std::int64_t>(random() % 20);
      const FrozenTensor z = random_vector(d), buffers = random_vector(b);
      const ModelOffer kept = offer(rank, key, z, buffers);
      const auto begin =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(d + b + 1));
      const auto count =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(d + b - begin + 1));
      const at::Tensor all =
          at::cat({d == 0 ? at::empty({0}) : z.read(), b == 0 ? at::empty({0}) : buffers.read()});
      expected[key] = all.narrow(0, begin, count);
      fetch(key, {kept, begin, count});
    }
    deliver_all(seed);
    ASSERT_EQ(answers_.size(), expected.size());
    for (const auto& [key, values] : expected) {
      ASSERT_TRUE(answers_[key].values.defined()) << key << ": " << answers_[key].why;
      EXPECT_TRUE(at::equal(answers_[key].values.read(), values)) << key;
    }
  }
}

// Of a process that ends, or that the supervisor knows to be lost: the others go on.
TEST_F(ModelFetcherTest, TheLossOfAProcessEndsItsFetchesAlone) {
  const FrozenTensor large = random_vector(3 * kMostModelPart);
  for (const bool notified : {false, true}) {
    answers_.clear();
    const Rank gone = notified ? 2 : 3;
    for (int i = 0; i < 3; ++i) {
      fetch(10 + i, {offer(gone, i, large, {}), 0, large.numel()});
      fetch(20 + i, {offer(4, i, large, {}), 0, large.numel()});
    }
    std::mt19937_64 random(1);
    deliver_one(random);
    if (notified) {
      self_->send(fetcher_, PeerLost{gone, ""});
      settle();
    } else {
      kill(sender_of(gone));
    }
    deliver_all(2, kMostOut);
    ASSERT_EQ(answers_.size(), 6U);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(answers_[10 + i].lost);
      EXPECT_FALSE(answers_[10 + i].values.defined());
      EXPECT_TRUE(at::equal(answers_[20 + i].values.read(), large.read()));
    }
  }
}

// A rank that is far ahead keeps its newest models, and the last one.
TEST_F(ModelFetcherTest, AModelThatIsTooOldIsRefused) {
  const FrozenTensor z = random_vector(5);
  const ModelOffer last = offer(1, kLastModel, z, {});
  std::vector<ModelOffer> offers;
  const auto epochs = static_cast<Epoch>(ModelSenderState::kMostEpochs) + 2;
  for (Epoch epoch = 0; epoch < epochs; ++epoch) offers.push_back(offer(1, epoch, z, {}));
  for (Epoch epoch = 0; epoch < epochs; ++epoch)
    fetch(static_cast<int>(epoch), {offers[static_cast<std::size_t>(epoch)], 0, 5});
  fetch(99, {last, 0, 5});
  deliver_all(1);
  for (Epoch epoch = 0; epoch < epochs; ++epoch) {
    const FetchedModel& fetched = answers_[static_cast<int>(epoch)];
    EXPECT_EQ(fetched.values.defined(), epoch >= 2) << epoch;
    EXPECT_FALSE(fetched.lost);
    EXPECT_EQ(fetched.why, epoch >= 2 ? "" : "rank 1 keeps its 8 newest models, and not this one");
  }
  EXPECT_TRUE(answers_[99].values.defined());
  self_->send(sender_of(1), ReleaseModel{1, kLastModel});
  fetch(100, {last, 0, 5});
  deliver_all(1);
  EXPECT_FALSE(answers_[100].values.defined());
}

TEST_F(ModelFetcherTest, RangesThatAModelDoesNotHaveAreRefused) {
  const ModelOffer kept = offer(1, 0, random_vector(5), random_vector(2));
  int key = 0;
  for (const auto& [begin, count] : {std::pair<std::int64_t, std::int64_t>{-1, 2}, {6, 2}, {8, 1}})
    fetch(key++, {kept, begin, count});
  deliver_all(1);
  ASSERT_EQ(answers_.size(), 3U);
  for (const auto& [at, fetched] : answers_) {
    EXPECT_FALSE(fetched.values.defined());
    EXPECT_NE(fetched.why.find("no numbers"), std::string::npos) << fetched.why;
  }
}

// What no sender was asked for is ignored, and a false part ends its fetch with an error.
TEST_F(ModelFetcherTest, FalsePartsAreNotTaken) {
  const FrozenTensor z = random_vector(5);
  const auto part = [&](Rank from, std::int64_t transfer, std::int64_t offset, std::int64_t bytes) {
    at::Tensor data = at::zeros({bytes}, at::kByte);
    self_->send(fetcher_,
                StatePart{from, {transfer, offset, 20, FrozenTensor::freeze(std::move(data))}});
    settle();
  };
  int key = 0;
  const auto transfer_out = [&] {
    return std::get<StateChunk>(head_->envelopes.back().payload).transfer;
  };
  fetch(key, {offer(1, key, z, {}), 0, 5});
  part(1, transfer_out() + 7, 0, 20);  // never asked for
  EXPECT_TRUE(answers_.empty());
  deliver_all(1);
  EXPECT_TRUE(at::equal(answers_[key].values.read(), z.read()));
  for (const auto& [from, offset, bytes] : {std::tuple<Rank, std::int64_t, std::int64_t>{2, 0, 20},
                                            {1, 4, 20},
                                            {1, 0, 16},
                                            {1, 0, 24}}) {
    fetch(++key, {offer(1, key, z, {}), 0, 5});
    part(from, transfer_out(), offset, bytes);
    ASSERT_EQ(answers_.count(key), 1U);
    EXPECT_NE(answers_[key].why.find("other numbers"), std::string::npos);
    deliver_all(1);
  }
}

// A rank of process 0 is lost while parts are on their way to it: another one receives them.
TEST_F(ModelFetcherTest, PartsForALostReceiverAreAskedForAgain) {
  kill(fetcher_);
  fetcher_ = system_.spawn(model_fetcher, ModelFetcherConfig{played<SupervisorActor>(), {0, 7}});
  transport_->detach(7);
  ASSERT_TRUE(transport_->attach(7, head_).ok());
  const auto for_rank_0 = [this] {
    return std::count_if(head_->envelopes.begin(), head_->envelopes.end(),
                         [](const Envelope& envelope) { return envelope.to == 0; });
  };
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::map<int, FrozenTensor> expected;
    answers_.clear();
    self_->send(fetcher_, MembersChanged{{0, 1}, {0}, 0});
    for (int key = 0; key < 3; ++key) {
      expected[key] = random_vector(1 + static_cast<std::int64_t>(random() % (4 * kMostModelPart)));
      fetch(key, {offer(1 + key, 0, expected[key], {}), 0, expected[key].numel()});
    }
    for (auto parts = random() % 5; parts > 0; --parts) deliver_one(random);
    const bool late = random() % 2 == 0;  // the parts arrive all the same
    if (!late) head_->envelopes.clear();
    const auto before = for_rank_0();
    self_->send(fetcher_, PeerLost{0, ""});
    settle();
    deliver_all(seed, kMostOut);
    EXPECT_EQ(for_rank_0(), 0) << "of " << before << " before";
    for (const auto& [key, values] : expected) {
      ASSERT_EQ(answers_.count(key), 1U);
      EXPECT_TRUE(at::equal(answers_[key].values.read(), values.read()));
    }
  }
}

TEST_F(ModelFetcherTest, PartsGoToARankOfProcess0ThatLives) {
  const FrozenTensor z = random_vector(5);
  const ModelOffer kept = offer(1, 0, z, {});
  self_->send(fetcher_, PeerLost{0, ""});
  fetch(1, {kept, 0, 5});
  EXPECT_EQ(answers_[1].why, "process 0 has no rank any more");
  self_->send(fetcher_, MembersChanged{{0, 1}, {0}, 0});  // it has returned
  fetch(2, {kept, 0, 5});
  deliver_all(1);
  EXPECT_TRUE(answers_[2].values.defined());
}

}  // namespace model_fetcher_test
}  // namespace grapevine
