#include "net/inproc/inproc.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "messages/check.hpp"
#include "tests/conformance/transport_suite.hpp"

namespace grapevine::conformance {
namespace inproc_test {

class InprocWorld {
 public:
  explicit InprocWorld(std::int32_t world_size) : transport_(make_inproc_transport(world_size)) {}
  Transport& endpoint(Rank) { return *transport_; }

 private:
  std::unique_ptr<Transport> transport_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Inproc, TransportSuite, InprocWorld);

std::shared_ptr<RecordingInbox> attach(Transport& transport, Rank rank,
                                       RecordingInbox::Hook hook = nullptr) {
  auto inbox = std::make_shared<RecordingInbox>(std::move(hook));
  EXPECT_TRUE(transport.attach(rank, inbox).ok());
  return inbox;
}

TEST(Inproc, SharesTheBytesAndKeepsNoHandle) {
  const auto transport = make_inproc_transport(2);
  attach(*transport, 0);
  auto inbox = attach(*transport, 1);
  Rng rng(1);
  FrozenTensor tensor = random_bits(rng, 4096, at::kFloat);
  const void* bytes = tensor.raw();
  Envelope e = numbered(0, 1, 0);
  std::get<Chunk>(e.payload).data = std::move(tensor);
  transport->send(std::move(e));
  const auto messages = inbox->messages_from(0);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(std::get<Chunk>(messages[0].payload).data.raw(), bytes);
}

TEST(Inproc, TheReceiverMayThawWithoutACopy) {
  class Thawing final : public Inbox {
   public:
    void deliver(Envelope e) override {
      memory = std::move(std::get<Chunk>(e.payload).data).thaw().data_ptr();
    }
    void peer_down(Rank, const std::string&) override {}
    const void* memory = nullptr;
  };
  const auto transport = make_inproc_transport(2);
  attach(*transport, 0);
  const auto inbox = std::make_shared<Thawing>();
  ASSERT_TRUE(transport->attach(1, inbox).ok());
  Rng rng(1);
  Envelope e = numbered(0, 1, 0);
  std::get<Chunk>(e.payload).data = random_bits(rng, 4096, at::kFloat);
  const void* memory = std::get<Chunk>(e.payload).data.raw();
  transport->send(std::move(e));
  EXPECT_EQ(inbox->memory, memory);
}

TEST(Inproc, RanksThatNeverAttachedReceiveAndSendNothing) {
  const auto transport = make_inproc_transport(3);
  auto inbox = attach(*transport, 0);
  transport->send(numbered(0, 1, 0));
  transport->send(numbered(2, 0, 0));
  EXPECT_EQ(transport->counters(0).messages_dropped, 1u);
  EXPECT_EQ(transport->counters(0).messages_sent, 0u);
  EXPECT_EQ(transport->counters(0).bytes_sent, 0u);
  EXPECT_EQ(transport->counters(2).messages_dropped, 1u);
  transport->detach(1);
  EXPECT_TRUE(inbox->arrivals().empty()) << "nobody was lost who was never there";
}

TEST(Inproc, ARankMayAttachAgain) {
  const auto transport = make_inproc_transport(2);
  auto watcher = attach(*transport, 0);
  for (int life = 1; life <= 3; ++life) {
    auto inbox = attach(*transport, 1);
    transport->send(numbered(0, 1, 0));
    transport->send(numbered(1, 0, life - 1));
    EXPECT_EQ(inbox->message_count(), 1u) << "life " << life;
    EXPECT_EQ(inbox->down_count(0), 0);
    transport->detach(1);
    EXPECT_EQ(watcher->down_count(1), life);
  }
  EXPECT_TRUE(counts_up(watcher->messages_from(1)));
}

// Rank 1 is stuck in its first delivery while more is queued for it; then it leaves and comes back.
TEST(Inproc, PendingDeliveriesAreDroppedWithTheLifeTheyWereMeantFor) {
  std::promise<void> entered;
  std::promise<void> release;
  const auto transport = make_inproc_transport(2);
  attach(*transport, 0);
  auto first = attach(*transport, 1, [&](const Envelope&) {
    entered.set_value();
    release.get_future().wait();
  });
  std::thread sender([&] { transport->send(numbered(0, 1, 0)); });
  entered.get_future().wait();
  for (int i = 1; i < 5; ++i) transport->send(numbered(0, 1, i));
  transport->detach(1);
  auto second = attach(*transport, 1);
  transport->send(numbered(0, 1, 0));
  release.set_value();
  sender.join();
  EXPECT_EQ(first->message_count(), 1u);
  ASSERT_TRUE(second->wait_messages(1));
  EXPECT_EQ(second->message_count(), 1u);
  EXPECT_EQ(transport->counters(0).messages_sent, 6u);
}

TEST(Inproc, AnInboxThatThrowsDoesNotSilenceItsRank) {
  const auto transport = make_inproc_transport(2);
  attach(*transport, 0);
  auto inbox = attach(*transport, 1, [](const Envelope& e) {
    if (index_of(e) == 0) throw std::runtime_error("role failed");
  });
  EXPECT_THROW(transport->send(numbered(0, 1, 0)), std::runtime_error);
  transport->send(numbered(0, 1, 1));
  EXPECT_EQ(inbox->message_count(), 2u);
}

TEST(Inproc, RanksOutsideTheWorldBreakAnInvariant) {
  EXPECT_THROW(make_inproc_transport(0), InvariantBroken);
  const auto transport = make_inproc_transport(2);
  attach(*transport, 0);
  EXPECT_THROW(transport->send(numbered(0, 2, 0)), InvariantBroken);
  EXPECT_THROW(transport->send(numbered(-1, 0, 0)), InvariantBroken);
  EXPECT_THROW(transport->counters(2), InvariantBroken);
  EXPECT_THROW(transport->detach(-1), InvariantBroken);
}

}  // namespace inproc_test
}  // namespace grapevine::conformance
