// The shared-memory transport in one process: the contract, connecting, lost and returning
// processes, and the memory of payloads.
#include "net/shm/shm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <iterator>

#include <filesystem>

#include <cstring>

#include <future>
#include <thread>

#include "messages/tensor_memory.hpp"
#include "net/shm/shm_arena.hpp"
#include "net/shm/shm_socket.hpp"
#include "net/token.hpp"
#include "tests/net/shm/shm_world.hpp"

namespace grapevine::conformance {
namespace shm_test {

using namespace std::chrono_literals;

// A process for each rank.
class OneEach : public ShmWorld {
 public:
  explicit OneEach(std::int32_t world_size) : ShmWorld(world_size, 1) {}
};
// Two ranks in each process.
class TwoEach : public ShmWorld {
 public:
  explicit TwoEach(std::int32_t world_size) : ShmWorld(world_size, 2) {}
};
// Threads sleep at once, and messages wait for room for one copy at a time.
class Impatient : public ShmWorld {
 public:
  explicit Impatient(std::int32_t world_size) : ShmWorld(world_size, 1, options()) {}
  static ShmOptions options() {
    ShmOptions options;
    options.spin = Duration::zero();
    options.copied_bytes = 1;
    return options;
  }
};
using Worlds = testing::Types<OneEach, TwoEach, Impatient>;
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, TransportSuite, Worlds);

FrozenTensor counting(std::int64_t floats, bool in_arena) {
  at::Tensor t = in_arena ? empty_to_send({floats}, at::kFloat) : at::empty({floats}, at::kFloat);
  for (std::int64_t i = 0; i < floats; ++i) t.data_ptr<float>()[i] = static_cast<float>(i);
  return FrozenTensor::freeze(std::move(t));
}

Envelope with_data(Envelope e, FrozenTensor data) {
  std::get<Chunk>(e.payload).data = std::move(data);
  return e;
}

// Keeps the data of what arrives, and nothing else.
class Keeping final : public Inbox {
 public:
  void deliver(Envelope e) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(std::move(std::get<Chunk>(e.payload).data));
  }
  void peer_down(Rank, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    down_ = true;
  }
  bool is_down() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return down_;
  }
  std::size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_.size();
  }
  std::vector<FrozenTensor> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(kept_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<FrozenTensor> kept_;
  bool down_ = false;
};

constexpr std::int64_t kFloats = 1 << 20;  // 4 MiB

struct Pair {
  explicit Pair(const ShmOptions& options = {}) : world(2, 1, options) {
    sender = attach(world.endpoint(0), 0);
    EXPECT_TRUE(world.endpoint(1).attach(1, receiver).ok());
  }
  FrozenTensor exchange(FrozenTensor data) {
    world.endpoint(0).send(with_data(numbered(0, 1, 0), std::move(data)));
    EXPECT_TRUE(eventually([&] { return receiver->count() == 1; }));
    auto taken = receiver->take();
    return taken.empty() ? FrozenTensor() : std::move(taken.front());
  }

  ShmWorld world;
  std::shared_ptr<RecordingInbox> sender;
  std::shared_ptr<Keeping> receiver = std::make_shared<Keeping>();
};

std::uint64_t used() {
  shm::Arena& arena = *shm::Arena::of_process();
  arena.collect();
  return arena.bytes() - arena.free_bytes();
}

TEST(Shm, CountsTheBytesThatWait) {
  ShmOptions options;
  options.copied_bytes = 4 << 20;  // the receiver has not read them: others wait
  ShmWorld world(2, 1, options);
  expect_queue_is_counted(world.endpoint(0), world.endpoint(1));
}

TEST(Shm, CountsWithoutALock) {
  ShmWorld world(2, 1);
  expect_count_takes_no_lock(world.endpoint(0), world.endpoint(1));
}

// Without a link nobody maps the memory: tensors lie elsewhere, for example in pinned memory.
TEST(ShmMemory, IsUsedFromTheFirstLinkOn) {
  ASSERT_FALSE(has_send_memory());
  auto first = make_shm(), second = make_shm();
  EXPECT_FALSE(has_send_memory());
  const std::vector<std::string> addresses = {first->address(), second->address()};
  ASSERT_TRUE(
      first->connect(addresses, place({0, 1}, 0, 2), kTimeout, {kJob, nullptr, false, {1}}).ok());
  EXPECT_FALSE(has_send_memory()) << "all other processes are absent";
  first->expect_process(1, {}, {});
  ASSERT_TRUE(
      second->connect(addresses, place({0, 1}, 1, 2), kTimeout, {kJob, nullptr, true, {}}).ok());
  EXPECT_TRUE(has_send_memory());
  second.reset();
  EXPECT_TRUE(has_send_memory()) << "the other transport may have a link again";
  first.reset();
  EXPECT_FALSE(has_send_memory());
}

// The address differs, because both processes of the test map the memory: the bytes are the same.
TEST(ShmMemory, ATensorOfTheArenaIsReadWhereItLies) {
  Pair pair;
  FrozenTensor mine = counting(kFloats, true);
  const std::uint64_t before = used();
  FrozenTensor theirs = pair.exchange(mine);
  EXPECT_EQ(used(), before) << "it was copied";
  ASSERT_TRUE(same_bits(mine, theirs));
  EXPECT_NE(mine.raw(), theirs.raw());
  // Both are views of one memory: what is written here, behind the type's back, is seen there.
  auto* const here = static_cast<float*>(const_cast<void*>(mine.raw()));
  here[17] = -1;
  EXPECT_EQ(theirs.data<float>()[17], -1);
}

TEST(ShmMemory, AReceiverCopiesBeforeItWritesWhatTheSenderStillReads) {
  Pair pair;
  FrozenTensor mine = counting(kFloats, true);
  FrozenTensor theirs = pair.exchange(mine);
  EXPECT_FALSE(theirs.sole_owner());
  std::move(theirs).thaw().zero_();
  EXPECT_TRUE(same_bits(mine, counting(kFloats, false)));
}

TEST(ShmMemory, ASenderCopiesBeforeItWritesWhatTheReceiverStillReads) {
  Pair pair;
  FrozenTensor mine = counting(kFloats, true);
  FrozenTensor theirs = pair.exchange(mine);
  std::move(mine).thaw().zero_();
  EXPECT_TRUE(same_bits(theirs, counting(kFloats, false)));
}

// The last owner may write without a copy, wherever the memory came from.
TEST(ShmMemory, AReceiverOwnsWhatTheSenderHasGivenAway) {
  for (const bool in_arena : {false, true}) {
    Pair pair;
    FrozenTensor theirs = pair.exchange(counting(kFloats, in_arena));
    EXPECT_TRUE(theirs.sole_owner());
    const void* const place = theirs.raw();
    at::Tensor written = std::move(theirs).thaw();
    EXPECT_EQ(written.data_ptr(), place);
    written.zero_();
  }
}

// A part of a tensor is lent: it lies anywhere in its block, and its reader never writes it.
TEST(ShmMemory, APartIsReadWhereItLiesAndReturns) {
  Pair pair;
  at::Tensor whole = empty_to_send({kFloats}, at::kFloat);
  whole.fill_(3);
  const at::Tensor values = whole.narrow(0, 5, kFloats - 9);
  LentParts parts;
  const std::uint64_t before = used();
  FrozenTensor theirs = pair.exchange(parts.lend(5, values));
  EXPECT_EQ(used(), before) << "it was copied";
  ASSERT_TRUE(theirs.read().equal(values));
  EXPECT_FALSE(theirs.sole_owner());
  whole.data_ptr<float>()[22] = -1;
  EXPECT_EQ(theirs.data<float>()[17], -1);
  EXPECT_FALSE(parts.take_back(5));
  theirs = FrozenTensor();
  EXPECT_TRUE(parts.take_back(5));
}

TEST(ShmMemory, MemoryReturnsWithTheLastHandle) {
  Pair pair;
  const std::uint64_t before = used();
  FrozenTensor theirs = pair.exchange(counting(kFloats, false));
  EXPECT_EQ(used(), before + kFloats * sizeof(float));
  FrozenTensor again = theirs;
  theirs = FrozenTensor();
  EXPECT_EQ(used(), before + kFloats * sizeof(float));
  again = FrozenTensor();
  EXPECT_EQ(used(), before);
}

TEST(ShmMemory, AReaderOutlivesTheSenderAndItsOwnTransport) {
  Pair pair;
  const std::uint64_t before = used();
  FrozenTensor theirs = pair.exchange(counting(kFloats, false));
  pair.world.end(0);
  ASSERT_TRUE(eventually([&] { return pair.receiver->is_down(); }));
  pair.world.end(1);
  // Others use the arena meanwhile, and not this memory.
  for (int i = 0; i < 20; ++i) {
    Pair other;
    other.exchange(FrozenTensor::freeze(at::zeros({kFloats})));
  }
  EXPECT_TRUE(same_bits(theirs, counting(kFloats, false)));
  theirs = FrozenTensor();
  EXPECT_EQ(used(), before);
}

// More payloads than can be lent, all kept: the rest is copied through the queue.
TEST(ShmMemory, EveryMessageArrivesWhateverTheReceiverKeeps) {
  constexpr int kMessages = 1500;
  ShmOptions options;
  Pair pair(options);
  for (int i = 0; i < kMessages; ++i)
    pair.world.endpoint(0).send(
        with_data(numbered(0, 1, i), FrozenTensor::freeze(at::full({5000}, i, at::kInt))));
  ASSERT_TRUE(eventually([&] { return pair.receiver->count() == kMessages; }));
  const auto kept = pair.receiver->take();
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(kept[static_cast<std::size_t>(i)].data<int>()[0], i);
    ASSERT_EQ(kept[static_cast<std::size_t>(i)].data<int>()[4999], i);
  }
}

// Takes its time for each message, less than an interval of the heartbeat for some of them.
class SlowInbox final : public Inbox {
 public:
  void deliver(Envelope) override {
    std::this_thread::sleep_for(1ms);
    ++delivered;
  }
  void peer_down(Rank, const std::string&) override {}
  std::atomic<int> delivered{0};
};

// A process that leaves shows that it lives until its last message is in the queue.
TEST(ShmEnd, ASlowReaderGetsAllOfAProcessThatLeaves) {
  constexpr int kMessages = 4000;
  ShmOptions options;
  options.heartbeat = 100ms;
  options.heartbeat_timeout = 1s;
  options.flush_timeout = kTimeout;
  ShmWorld world(2, 1, options);
  const auto reader = std::make_shared<SlowInbox>();
  const auto sender = attach(world.endpoint(0), 0);
  ASSERT_TRUE(world.endpoint(1).attach(1, reader));
  const FrozenTensor payload = FrozenTensor::freeze(at::full({100}, 1, at::kInt));
  for (int i = 0; i < kMessages; ++i) world.endpoint(0).send(with_data(numbered(0, 1, i), payload));
  world.end(0);
  EXPECT_TRUE(eventually([&] { return reader->delivered == kMessages; })) << reader->delivered;
}

bool reaches(const std::string& address) {
  const auto reached = reaches_by_shm(address);
  EXPECT_TRUE(reached.ok()) << reached.error().message;
  return reached.ok() && *reached;
}

TEST(ShmConnect, AProcessOfAnotherHostIsNamed) {
  auto first = make_shm();
  auto second = make_shm();
  const std::string foreign = "shm:another boot/1/2/3:grapevine-0";
  const auto connected = second->connect({foreign, second->address()}, one_each(1, 2), 1s);
  ASSERT_FALSE(connected.ok());
  EXPECT_NE(connected.error().message.find("process 0"), std::string::npos);
  EXPECT_NE(connected.error().message.find("another host"), std::string::npos);
  EXPECT_TRUE(reaches(first->address()));
  EXPECT_FALSE(reaches(foreign));
  const std::string address = first->address();
  first.reset();
  EXPECT_FALSE(reaches(address));
}

// On a host with many processes that all look for each other at the same time.
TEST(ShmConnect, AProcessWithAFullQueueIsReached) {
  const std::string name = "grapevine-" + random_hex(16);
  const auto listener = shm::listen_at(name);
  ASSERT_TRUE(listener.ok());
  std::vector<FileDescriptor> waiting;
  for (;;) {
    auto socket = shm::connect_to(name);
    if (!socket) {
      EXPECT_EQ(socket.error().code, Errc::timeout) << socket.error().message;
      break;
    }
    waiting.push_back(*std::move(socket));
  }
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    EXPECT_GE(shm::accept_from(listener->get()).get(), 0);
  });
  EXPECT_TRUE(reaches("shm:" + shm_host_key() + ":" + name));
  later.join();
}

// It would use another wire than the process at the other end.
TEST(ShmConnect, AProcessWithoutDescriptorsDoesNotSayThatItReachesNone) {
  const auto other = make_shm();
  const std::string address = other->address(), name = address.substr(address.rfind(':') + 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto reached = reaches_by_shm(address);
  const auto connected = shm::connect_to(name);
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (const Error& error : {reached.ok() ? Error{} : reached.error(), connected.error()}) {
    EXPECT_EQ(error.code, Errc::io);
    EXPECT_NE(error.message.find("ulimit -n"), std::string::npos) << error.message;
  }
}

TEST(ShmConnect, AMissingProcessIsNamed) {
  auto first = make_shm();
  const auto connected = first->connect({first->address(), ""}, one_each(0, 2), 100ms);
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, Errc::timeout);
  EXPECT_NE(connected.error().message.find("process 1"), std::string::npos);
}

TEST(ShmConnect, CancellingEndsTheWait) {
  auto first = make_shm();
  const auto connected =
      first->connect({first->address(), ""}, one_each(0, 2), kTimeout, {kJob, [] { return true; }});
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, Errc::failed);
}

TEST(ShmLoss, TheEndOfAProcessIsOnePeerDownOfEachOfItsRanks) {
  ShmWorld world(4, 2);
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 4; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  world.end(1);
  for (const int r : {0, 1})
    for (const Rank lost : {2, 3}) {
      ASSERT_TRUE(inboxes[static_cast<std::size_t>(r)]->wait_down(lost));
      EXPECT_EQ(inboxes[static_cast<std::size_t>(r)]->down_count(lost), 1);
    }
}

TEST(ShmLoss, AReportedLossComesOnceAfterWhatHasArrived) {
  ShmWorld world(2, 1);
  auto a = attach(world.endpoint(0), 0);
  auto b = attach(world.endpoint(1), 1);
  world.endpoint(1).send(numbered(1, 0, 0));
  ASSERT_TRUE(a->wait_messages(1));
  world.process(0).process_down(1);
  world.process(0).process_down(1);
  ASSERT_TRUE(a->wait_down(1));
  ASSERT_TRUE(b->wait_down(0)) << "the link is closed";
  EXPECT_EQ(a->down_count(1), 1);
  EXPECT_EQ(a->down_reason(1), "");
}

// In memory of the heap: the sender copies it.
Envelope with_bytes(Envelope message, std::int64_t bytes) {
  at::Tensor data = at::empty({bytes}, at::kByte);
  std::memset(data.data_ptr(), 1, static_cast<std::size_t>(bytes));
  std::get<Chunk>(message.payload).data = FrozenTensor::freeze(std::move(data));
  return message;
}

// The bell that says so may be read among the packets of a new segment.
TEST(ShmLink, MessagesThatWaitForRoomLeaveWhateverElseArrives) {
  ShmWorld world(2, 1);
  std::promise<void> entered, release, sent;
  const auto released = release.get_future().share(), all_sent = sent.get_future().share();
  const auto a = attach(world.endpoint(0), 0, [&](const Envelope& e) {
    if (index_of(e) != 0) return;
    entered.set_value();
    released.wait();
  });
  const auto b = attach(world.endpoint(1), 1, [&](const Envelope& e) {
    if (index_of(e) == 0) all_sent.wait();
  });
  world.endpoint(1).send(numbered(1, 0, 0));
  entered.get_future().wait();
  // More than a sender copies before the receiver has read.
  for (int i = 0; i < 3; ++i)
    world.endpoint(0).send(with_bytes(numbered(0, 1, i), std::int64_t{40} << 20));
  sent.set_value();
  ASSERT_TRUE(b->wait_messages(1));
  world.endpoint(1).send(with_bytes(numbered(1, 0, 1), 100'000));
  release.set_value();
  EXPECT_TRUE(b->wait_messages(3));
}

// Tensors of a size of their own have segments of their own.
TEST(ShmLink, ReceivedSegmentsTakeNoDescriptors) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  };
  ShmWorld world(2, 1);
  const auto a = attach(world.endpoint(0), 0);
  const auto b = attach(world.endpoint(1), 1);
  world.endpoint(0).send(with_bytes(numbered(0, 1, 0), 1 << 20));
  ASSERT_TRUE(b->wait_messages(1));
  const auto before = descriptors();
  constexpr int kSegments = 4;
  for (int i = 1; i <= kSegments; ++i) {
    world.endpoint(0).send(with_bytes(numbered(0, 1, i), std::int64_t{70 + i} << 20));
    ASSERT_TRUE(b->wait_messages(static_cast<std::size_t>(i) + 1));
  }
  EXPECT_LE(descriptors() - before, kSegments) << "those of the sender, which passes them on";
}

TEST(ShmReturn, AnExpectedProcessMayReturnAndBeLostAgain) {
  ShmWorld world(3, 1);
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 3; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  for (std::ptrdiff_t time = 1; time <= 50; ++time) {
    world.end(1);
    for (const int r : {0, 2})
      ASSERT_TRUE(inboxes[static_cast<std::size_t>(r)]->wait_down(1, time));
    for (const int r : {0, 2}) world.process(r).expect_process(1, {}, {});
    const auto joined = world.join_again(1, {});
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    for (const int r : {0, 2}) world.endpoint(r).send(numbered(r, 1, 0));  // at once
    inboxes[1] = attach(world.endpoint(1), 1);
    for (const int r : {0, 2}) {
      world.endpoint(1).send(numbered(1, r, 0));
      ASSERT_TRUE(
          inboxes[static_cast<std::size_t>(r)]->wait_messages(static_cast<std::size_t>(time)));
    }
    ASSERT_TRUE(inboxes[1]->wait_messages(2)) << "time " << time;
  }
}

TEST(ShmReturn, AProcessThatIsLostWhileAnotherJoinsIsNotAwaited) {
  ShmWorld world(3, 1);
  auto first = attach(world.endpoint(0), 0);
  for (const std::int32_t lost : {1, 2}) world.end(lost);
  for (const Rank lost : {1, 2}) ASSERT_TRUE(first->wait_down(lost));
  world.process(0).expect_process(1, {}, {});
  std::atomic<int> polls{0};
  const auto joined = world.join_again(
      1, {}, kTimeout, [&](std::int32_t process) { return process == 2 && ++polls > 2; });
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_FALSE(world.process(1).is_up(2));
  const auto returned = attach(world.endpoint(1), 1);
  world.endpoint(0).send(numbered(0, 1, 0));
  world.endpoint(1).send(numbered(1, 0, 0));
  ASSERT_TRUE(first->wait_messages(1));
  ASSERT_TRUE(returned->wait_messages(1));
  world.process(1).process_down(2);
  EXPECT_EQ(returned->down_count(2), 0) << "its loss is known";
}

TEST(ShmReturn, AnUnexpectedProcessIsRefused) {
  ShmWorld world(2, 1);
  auto a = attach(world.endpoint(0), 0);
  world.end(1);
  ASSERT_TRUE(a->wait_down(1));
  const auto joined = world.join_again(1, {}, 300ms);
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(joined.error().message.find("process 0"), std::string::npos);
}

// ---- The arena

TEST(ShmArena, BlocksDoNotOverlapAndAreUsedAgain) {
  auto arena = std::make_shared<shm::Arena>(std::uint64_t{64} << 20, 1 << 20);
  Rng rng(7);
  std::vector<std::pair<at::Tensor, std::uint8_t>> held;
  for (int i = 0; i < 4000; ++i) {
    if (held.size() > 20 || (!held.empty() && rng() % 3 == 0)) {
      const std::size_t at = rng() % held.size();
      const auto* bytes = held[at].first.data_ptr<std::uint8_t>();
      for (std::int64_t b = 0; b < held[at].first.numel(); b += 511)
        ASSERT_EQ(bytes[b], held[at].second);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    at::Tensor t = arena->allocate({static_cast<std::int64_t>(1 + rng() % 300000)}, at::kByte);
    ASSERT_TRUE(t.defined());
    held.emplace_back(t, static_cast<std::uint8_t>(i));
    t.fill_(static_cast<std::uint8_t>(i));
  }
  EXPECT_LT(arena->bytes(), std::uint64_t{24} << 20);
  held.clear();
  EXPECT_EQ(arena->free_bytes(), arena->bytes());
}

TEST(ShmArena, WithoutMemoryThereIsNoTensor) {
  auto arena = std::make_shared<shm::Arena>(std::uint64_t{4} << 20, 1 << 20);
  const at::Tensor first = arena->allocate({3 << 20}, at::kByte);
  EXPECT_TRUE(first.defined());
  EXPECT_FALSE(arena->allocate({2 << 20}, at::kByte).defined());
  EXPECT_FALSE(arena->allocate({std::int64_t{1} << 50}, at::kByte).defined());
  EXPECT_TRUE(arena->allocate({1 << 20}, at::kByte).defined());
}

}  // namespace shm_test
}  // namespace grapevine::conformance
