// What every transport must do (net/transport.hpp), as a typed test suite.
//
// A transport instantiates it with a World: N connected ranks, however many processes, sockets or
// threads that takes.
//
//   class MyWorld {
//    public:
//     explicit MyWorld(std::int32_t world_size);
//     Transport& endpoint(Rank rank);  // what `rank` attaches to and sends through
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(My, TransportSuite, MyWorld);
//
// Delivery may be asynchronous: the suite waits for what must come, with a deadline that only a
// hang can reach, and never for a fixed time.
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "messages/random.hpp"
#include "net/transport.hpp"
#include "tests/counting_allocator.hpp"

namespace grapevine::conformance {

inline constexpr std::chrono::seconds kHangDeadline{60};

// Waits for a condition that other threads bring about without saying so.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kHangDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Keeps everything it is given, in the order of arrival. Thread-safe.
class RecordingInbox final : public Inbox {
 public:
  struct Arrival {
    bool is_down = false;
    Rank peer = 0;
    Envelope envelope;   // empty where is_down
    std::string reason;  // where is_down
  };
  using Hook = std::function<void(const Envelope&)>;

  // `hook` runs inside deliver(), on the transport's thread, after the message is recorded.
  explicit RecordingInbox(Hook hook = nullptr) : hook_(std::move(hook)) {}

  void deliver(Envelope envelope) override {
    record({false, envelope.from, envelope, ""});
    if (hook_) hook_(envelope);
  }
  void peer_down(Rank peer, const std::string& reason) override {
    record({true, peer, {}, reason});
  }

  std::vector<Arrival> arrivals() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return arrivals_;
  }
  std::vector<Envelope> messages_from(Rank peer) const {
    std::vector<Envelope> messages;
    for (const Arrival& a : arrivals())
      if (!a.is_down && a.peer == peer) messages.push_back(a.envelope);
    return messages;
  }
  std::size_t message_count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }
  int down_count(Rank peer) const {
    int count = 0;
    for (const Arrival& a : arrivals()) count += a.is_down && a.peer == peer;
    return count;
  }

  // Why a peer is down; empty where it left, or is up.
  std::string down_reason(Rank peer) const {
    for (const Arrival& a : arrivals())
      if (a.is_down && a.peer == peer) return a.reason;
    return "";
  }

  bool wait_messages(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kHangDeadline, [&] { return messages_ >= count; });
  }
  bool wait_down(Rank peer, std::ptrdiff_t times = 1) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kHangDeadline, [&] {
      return std::count_if(arrivals_.begin(), arrivals_.end(),
                           [&](const Arrival& a) { return a.is_down && a.peer == peer; }) >= times;
    });
  }

 private:
  void record(Arrival arrival) {
    const std::lock_guard<std::mutex> lock(mutex_);
    messages_ += arrival.is_down ? 0 : 1;
    arrivals_.push_back(std::move(arrival));
    changed_.notify_all();
  }

  const Hook hook_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  std::size_t messages_ = 0;
};

// Lets each message go before it counts it. Thread-safe.
class ForgettingInbox final : public Inbox {
 public:
  void deliver(Envelope envelope) override {
    { const Envelope forgotten = std::move(envelope); }
    const std::lock_guard<std::mutex> lock(mutex_);
    ++messages_;
    changed_.notify_all();
  }
  void peer_down(Rank, const std::string&) override {}

  bool wait_messages(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kHangDeadline, [&] { return messages_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int messages_ = 0;  // guarded by mutex_
};

// Runs one thread per rank (or other index) and joins them all.
inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& t : threads) t.join();
}

inline FrozenTensor random_bits(Rng& rng, std::size_t bytes, at::ScalarType dtype) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(bytes / at::elementSize(dtype))},
                           at::TensorOptions(dtype));
  auto* to = static_cast<unsigned char*>(t.data_ptr());
  for (std::size_t i = 0; i < t.nbytes(); i += sizeof(std::uint64_t)) {
    const std::uint64_t bits = rng();
    std::memcpy(to + i, &bits, std::min(sizeof bits, t.nbytes() - i));
  }
  return FrozenTensor::freeze(std::move(t));
}

inline bool same_bits(const FrozenTensor& a, const FrozenTensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0);
}

// A small message that names its place in its sender's stream.
inline Envelope numbered(Rank from, Rank to, std::int32_t index, std::int32_t stream = 0) {
  Envelope e;
  e.from = from;
  e.to = to;
  e.stamp.origin = from;
  e.stamp.step = index;
  e.payload = Chunk{0, stream, index, {}};
  return e;
}

inline std::int32_t index_of(const Envelope& e) { return std::get<Chunk>(e.payload).index; }
inline std::int32_t stream_of(const Envelope& e) { return std::get<Chunk>(e.payload).round; }

// The messages are 0, 1, 2, …: nothing lost in between, repeated or overtaken.
inline testing::AssertionResult counts_up(const std::vector<Envelope>& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (index_of(messages[i]) != static_cast<std::int32_t>(i))
      return testing::AssertionFailure()
             << "message " << index_of(messages[i]) << " from rank " << messages[i].from
             << " arrived in place " << i << " of " << messages.size();
  return testing::AssertionSuccess();
}

// For transports between processes, which count what waits: rank 1 receives in another process than
// rank 0, and hangs. No rank is attached yet.
inline void expect_queue_is_counted(Transport& sender, Transport& receiver) {
  constexpr int kMessages = 64;  // more than sockets and queues take
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const auto sending = std::make_shared<RecordingInbox>();
  const auto hanging =
      std::make_shared<RecordingInbox>([released](const Envelope&) { released.wait(); });
  ASSERT_TRUE(sender.attach(0, sending).ok());
  ASSERT_TRUE(receiver.attach(1, hanging).ok());
  // What the links begin with has gone.
  EXPECT_TRUE(eventually([&] { return sender.queued_bytes() == 0; }));
  Rng rng(11);
  const FrozenTensor data = random_bits(rng, kBytes, at::kByte);
  std::uint64_t total = 0;
  for (int i = 0; i < kMessages; ++i) {
    Envelope e = numbered(0, 1, i);
    std::get<Chunk>(e.payload).data = data;
    total += wire_size(e) + 64;  // and a prefix
    sender.send(std::move(e));
  }
  EXPECT_TRUE(eventually([&] { return sender.queued_bytes() >= kBytes; }));
  EXPECT_LE(sender.queued_bytes(), total);
  release.set_value();
  EXPECT_TRUE(hanging->wait_messages(kMessages));
  EXPECT_TRUE(eventually([&] { return sender.queued_bytes() == 0; })) << sender.queued_bytes();
  EXPECT_EQ(receiver.queued_bytes(), 0U);
}

// An actor reads the count in its handler: a thread that sends, and holds locks meanwhile, must not
// hold it up. Here it frees the memory of a payload. No rank is attached yet.
inline void expect_count_takes_no_lock(Transport& sender, Transport& receiver) {
  const auto sending = std::make_shared<RecordingInbox>();
  const auto receiving = std::make_shared<RecordingInbox>();
  ASSERT_TRUE(sender.attach(0, sending).ok());
  ASSERT_TRUE(receiver.attach(1, receiving).ok());
  constexpr std::int64_t kFloats = 1 << 18;
  std::vector<float> memory(kFloats, 1.0F);
  std::promise<bool> answered;
  std::thread reader;
  const auto release = [&](void*) {
    std::promise<void> read;
    const std::future<void> done = read.get_future();
    reader = std::thread([&sender, read = std::move(read)]() mutable {
      sender.queued_bytes();
      read.set_value();
    });
    answered.set_value(done.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  };
  Envelope e = numbered(0, 1, 0);
  std::get<Chunk>(e.payload).data =
      FrozenTensor::freeze(at::from_blob(memory.data(), {kFloats}, release, at::kFloat));
  sender.send(std::move(e));
  EXPECT_TRUE(receiving->wait_messages(1));
  EXPECT_TRUE(answered.get_future().get()) << "it waits for the thread that sends";
  reader.join();
}

template <class World>
class TransportSuite : public testing::Test {
 protected:
  // A world with an inbox at every rank.
  void start(std::int32_t world_size) {
    world_ = std::make_unique<World>(world_size);
    for (Rank r = 0; r < world_size; ++r) add(r, nullptr);
  }
  void add(Rank rank, RecordingInbox::Hook hook) {
    auto inbox = std::make_shared<RecordingInbox>(std::move(hook));
    const Expected<void> attached = endpoint(rank).attach(rank, inbox);
    ASSERT_TRUE(attached.ok()) << attached.error().message;
    inboxes_[rank] = std::move(inbox);
  }
  void TearDown() override { world_.reset(); }

  Transport& endpoint(Rank rank) { return world_->endpoint(rank); }
  RecordingInbox& inbox(Rank rank) { return *inboxes_.at(rank); }
  void send(Envelope e) {
    Transport& transport = endpoint(e.from);
    transport.send(std::move(e));
  }

  // Destroyed before the inboxes that it may still deliver to.
  std::map<Rank, std::shared_ptr<RecordingInbox>> inboxes_;
  std::unique_ptr<World> world_;
};

TYPED_TEST_SUITE_P(TransportSuite);

TYPED_TEST_P(TransportSuite, KnowsItsWorldSize) {
  this->start(3);
  for (Rank r = 0; r < 3; ++r) EXPECT_EQ(this->endpoint(r).world_size(), 3);
}

TYPED_TEST_P(TransportSuite, AttachRefusesForeignAndDuplicateRanks) {
  this->start(2);
  for (const Rank rank : {-1, 2, 0}) {
    const Expected<void> attached =
        this->endpoint(0).attach(rank, std::make_shared<RecordingInbox>());
    ASSERT_FALSE(attached.ok()) << "rank " << rank;
    EXPECT_NE(attached.error().message.find(std::to_string(rank)), std::string::npos);
    EXPECT_EQ(attached.error().message.find('\n'), std::string::npos);
  }
  this->send(numbered(1, 0, 0));  // the refused ones disturbed nothing
  EXPECT_TRUE(this->inbox(0).wait_messages(1));
}

TYPED_TEST_P(TransportSuite, DeliversOnceAndInOrder) {
  constexpr int kMessages = 2000;
  this->start(2);
  for (int i = 0; i < kMessages; ++i) this->send(numbered(0, 1, i));
  ASSERT_TRUE(this->inbox(1).wait_messages(kMessages));
  // Answered over the same pair: anything delivered twice would have come before the answer.
  this->send(numbered(1, 0, 0));
  ASSERT_TRUE(this->inbox(0).wait_messages(1));
  const auto messages = this->inbox(1).messages_from(0);
  EXPECT_EQ(messages.size(), static_cast<std::size_t>(kMessages));
  EXPECT_TRUE(counts_up(messages));
}

TYPED_TEST_P(TransportSuite, LargeMessagesAreNotOvertakenBySmallOnes) {
  constexpr int kMessages = 60;
  this->start(2);
  Rng rng(5);
  for (int i = 0; i < kMessages; ++i) {
    Envelope e = numbered(0, 1, i);
    if (i % 3 == 0)
      std::get<Chunk>(e.payload).data = random_bits(rng, i % 2 == 0 ? 300000 : 9000, at::kByte);
    this->send(std::move(e));
  }
  ASSERT_TRUE(this->inbox(1).wait_messages(kMessages));
  EXPECT_TRUE(counts_up(this->inbox(1).messages_from(0)));
}

TYPED_TEST_P(TransportSuite, EveryFieldOfEveryKindArrives) {
  this->start(2);
  Rng rng(1);
  std::vector<Payload> payloads = {
      Share{-3, 0.1, random_bits(rng, 64, at::kFloat)},
      Leave{5},
      Chunk{1, 2, 3, random_bits(rng, 64, at::kHalf)},
      Marker{6},
      Swap{7, true, random_bits(rng, 48, at::kFloat), random_bits(rng, 64, at::kLong)},
      ProgressUpdate{random_bits(rng, 64, at::kLong)},
      Ask{8},
      Grant{9, random_bits(rng, 64, at::kFloat)},
      Commit{10, 3, random_bits(rng, 64, at::kFloat)},
      Receipt{11, true, random_bits(rng, 64, at::kFloat)},
      Activate{12, true},
      Parameters{13, true, 0.75, random_bits(rng, 64, at::kFloat)},
      PackedChunk{8, 1, 2, {random_bits(rng, 40, at::kInt), random_bits(rng, 40, at::kFloat), {}}},
      Extension{"mine", {1, -2}, {0.25}, {random_bits(rng, 64, at::kFloat), {}}},
      Share{7, 1.0, {}}};
  std::vector<Envelope> sent;
  for (Payload& payload : payloads) {
    Envelope e;
    e.from = 0;
    e.to = 1;
    e.stamp = {1, -2, 3, Timestamp(4), 5, 6};
    e.payload = std::move(payload);
    sent.push_back(e);
    this->send(std::move(e));
  }
  ASSERT_TRUE(this->inbox(1).wait_messages(sent.size()));
  const auto received = this->inbox(1).messages_from(0);
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(encode(received[i]), encode(sent[i])) << "message " << i;
}

TYPED_TEST_P(TransportSuite, PayloadsArriveBitwise) {
  const std::vector<std::size_t> sizes = {0,     1,       7,       8,       63,      64,    65,
                                          4095,  4096,    8191,    8192,    8193,    65535, 65536,
                                          65537, 1000003, 1 << 20, 4 << 20, 16 << 20};
  this->start(2);
  Rng rng(2);
  std::vector<FrozenTensor> sent;
  for (const std::size_t size : sizes)
    for (const at::ScalarType dtype : {at::kByte, at::kFloat, at::kBFloat16}) {
      sent.push_back(random_bits(rng, size, dtype));
      Envelope e = numbered(0, 1, static_cast<std::int32_t>(sent.size()) - 1);
      std::get<Chunk>(e.payload).data = sent.back();
      this->send(std::move(e));
    }
  ASSERT_TRUE(this->inbox(1).wait_messages(sent.size()));
  const auto received = this->inbox(1).messages_from(0);
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, sent[i]))
        << sent[i].nbytes() << " bytes of " << sent[i].dtype();
}

// Whether a world receives into memory of a device, which the device's allocator recycles.
template <class World, class = void>
struct ReceivesOnDevice : std::false_type {};
template <class World>
struct ReceivesOnDevice<World, std::enable_if_t<World::kReceivesOnDevice>> : std::true_type {};

// Fresh memory costs as much as moving the bytes into it.
TYPED_TEST_P(TransportSuite, ReceivedPayloadsLieInRecycledMemory) {
  if (ReceivesOnDevice<TypeParam>::value)
    GTEST_SKIP() << "what is received lies on a device, whose allocator recycles its memory";
  this->world_ = std::make_unique<TypeParam>(2);
  const auto sending = std::make_shared<ForgettingInbox>();
  const auto receiving = std::make_shared<ForgettingInbox>();
  ASSERT_TRUE(this->endpoint(0).attach(0, sending).ok());
  ASSERT_TRUE(this->endpoint(1).attach(1, receiving).ok());
  Rng rng(13);
  int sent = 0;
  const std::vector<std::size_t> sizes = {4096, 6000, 20000, 100000, 1 << 20};
  for (const std::size_t size : sizes) {
    SCOPED_TRACE(std::to_string(size) + " bytes");
    const FrozenTensor data = random_bits(rng, size, at::kFloat);
    const auto exchange = [&](int messages) {
      bool received = true;
      for (const int end = sent + messages; received && sent < end;) {
        Envelope e = numbered(0, 1, sent);
        std::get<Chunk>(e.payload).data = data;
        this->send(std::move(e));
        received = receiving->wait_messages(++sent);
      }
      return received;
    };
    ASSERT_TRUE(exchange(20));
    const CountingAllocator allocator;
    ASSERT_TRUE(exchange(200));
    EXPECT_EQ(allocator.blocks(), 0);
  }
}

// The sender takes its own handle back and writes while the message may still be on its way.
TYPED_TEST_P(TransportSuite, ASenderCannotChangeWhatItSent) {
  constexpr int kMessages = 50;
  this->start(2);
  std::vector<FrozenTensor> copies;
  Rng rng(3);
  for (int i = 0; i < kMessages; ++i) {
    FrozenTensor mine = random_bits(rng, 40000, at::kFloat);
    copies.push_back(FrozenTensor::copy_of(mine.read()));
    Envelope e = numbered(0, 1, i);
    std::get<Chunk>(e.payload).data = mine;
    this->send(std::move(e));
    std::move(mine).thaw().zero_();
  }
  ASSERT_TRUE(this->inbox(1).wait_messages(kMessages));
  const auto received = this->inbox(1).messages_from(0);
  for (int i = 0; i < kMessages; ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, copies[i])) << i;
}

TYPED_TEST_P(TransportSuite, ARankMaySendToItself) {
  constexpr int kMessages = 100;
  this->start(2);
  for (int i = 0; i < kMessages; ++i) this->send(numbered(0, 0, i));
  ASSERT_TRUE(this->inbox(0).wait_messages(kMessages));
  EXPECT_TRUE(counts_up(this->inbox(0).messages_from(0)));
  EXPECT_EQ(this->inbox(1).message_count(), 0u);
}

TYPED_TEST_P(TransportSuite, EveryPairIsFifoUnderConcurrentTraffic) {
  constexpr int kRanks = 4;
  constexpr int kMessages = 400;
  this->start(kRanks);
  run_threads(kRanks, [&](int from) {
    Rng rng(static_cast<std::uint64_t>(from));
    for (int i = 0; i < kMessages; ++i)
      for (Rank to = 0; to < kRanks; ++to) {
        Envelope e = numbered(from, to, i);
        if (i % 40 == 0) std::get<Chunk>(e.payload).data = random_bits(rng, 20000, at::kByte);
        this->send(std::move(e));
      }
  });
  for (Rank to = 0; to < kRanks; ++to) {
    ASSERT_TRUE(this->inbox(to).wait_messages(kRanks * kMessages)) << "rank " << to;
    for (Rank from = 0; from < kRanks; ++from) {
      const auto messages = this->inbox(to).messages_from(from);
      EXPECT_EQ(messages.size(), static_cast<std::size_t>(kMessages));
      EXPECT_TRUE(counts_up(messages)) << "to rank " << to;
    }
  }
}

TYPED_TEST_P(TransportSuite, SeveralThreadsOfOneRankKeepTheirOwnOrder) {
  constexpr int kThreads = 6;
  constexpr int kMessages = 500;
  this->start(2);
  run_threads(kThreads, [&](int stream) {
    for (int i = 0; i < kMessages; ++i) this->send(numbered(0, 1, i, stream));
  });
  ASSERT_TRUE(this->inbox(1).wait_messages(kThreads * kMessages));
  std::vector<std::vector<Envelope>> streams(kThreads);
  for (const Envelope& e : this->inbox(1).messages_from(0)) streams[stream_of(e)].push_back(e);
  for (const auto& stream : streams) {
    EXPECT_EQ(stream.size(), static_cast<std::size_t>(kMessages));
    EXPECT_TRUE(counts_up(stream));
  }
}

// Both ends answer from inside deliver(), started from both ends at once.
TYPED_TEST_P(TransportSuite, AnInboxMaySendWhileItReceives) {
  constexpr int kHops = 1000;
  this->world_ = std::make_unique<TypeParam>(2);
  for (Rank r = 0; r < 2; ++r)
    this->add(r, [this, r](const Envelope& e) {
      if (index_of(e) < kHops) this->send(numbered(r, 1 - r, index_of(e) + 1, stream_of(e)));
    });
  run_threads(2, [&](int from) { this->send(numbered(from, 1 - from, 0, from)); });
  ASSERT_TRUE(this->inbox(0).wait_messages(kHops + 1));
  ASSERT_TRUE(this->inbox(1).wait_messages(kHops + 1));
}

TYPED_TEST_P(TransportSuite, AnInboxMaySendToItselfWhileItReceives) {
  constexpr int kHops = 20000;
  this->world_ = std::make_unique<TypeParam>(1);
  this->add(0, [this](const Envelope& e) {
    if (index_of(e) < kHops) this->send(numbered(0, 0, index_of(e) + 1));
  });
  this->send(numbered(0, 0, 0));
  ASSERT_TRUE(this->inbox(0).wait_messages(kHops + 1));
  EXPECT_TRUE(counts_up(this->inbox(0).messages_from(0)));
}

// A receiver that hangs holds up whoever delivers to it, but no other sender.
TYPED_TEST_P(TransportSuite, SendReturnsWhileTheReceiverHangs) {
  std::promise<void> entered;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  this->world_ = std::make_unique<TypeParam>(3);
  this->add(0, nullptr);
  this->add(1, nullptr);
  this->add(2, [&](const Envelope& e) {
    if (e.from != 0) return;
    entered.set_value();
    released.wait();
  });
  std::thread first([&] { this->send(numbered(0, 2, 0)); });
  EXPECT_EQ(entered.get_future().wait_for(kHangDeadline), std::future_status::ready);
  auto second = std::async(std::launch::async, [&] {
    for (int i = 0; i < 100; ++i) this->send(numbered(1, 2, i));
  });
  EXPECT_EQ(second.wait_for(kHangDeadline), std::future_status::ready);
  release.set_value();
  first.join();
  second.wait();
  ASSERT_TRUE(this->inbox(2).wait_messages(101));
  EXPECT_TRUE(counts_up(this->inbox(2).messages_from(1)));
}

TYPED_TEST_P(TransportSuite, PeerDownComesOnceAfterThePeersLastMessage) {
  constexpr int kMessages = 300;
  this->start(4);
  for (int i = 0; i < kMessages; ++i)
    for (const Rank to : {0, 2, 3}) this->send(numbered(1, to, i));
  this->endpoint(1).detach(1);
  this->endpoint(1).detach(1);  // has left already: says nothing new
  for (const Rank r : {0, 2, 3}) {
    ASSERT_TRUE(this->inbox(r).wait_down(1)) << "rank " << r;
    const auto arrivals = this->inbox(r).arrivals();
    EXPECT_TRUE(arrivals.back().is_down) << "a message after its sender's peer_down";
    EXPECT_TRUE(counts_up(this->inbox(r).messages_from(1)));
  }
  // A second departure, seen by all, flushes any second announcement of the first.
  this->endpoint(3).detach(3);
  for (const Rank r : {0, 2}) {
    ASSERT_TRUE(this->inbox(r).wait_down(3));
    EXPECT_EQ(this->inbox(r).down_count(1), 1);
    EXPECT_EQ(this->inbox(r).down_count(3), 1);
  }
}

// Rank 0 is stuck in its first delivery while more is queued behind it, the sender's departure
// last.
TYPED_TEST_P(TransportSuite, PeerDownDoesNotOvertakeQueuedMessages) {
  constexpr int kMessages = 50;
  std::promise<void> entered;
  std::promise<void> release;
  this->world_ = std::make_unique<TypeParam>(2);
  this->add(1, nullptr);
  this->add(0, [&](const Envelope& e) {
    if (index_of(e) != 0) return;
    entered.set_value();
    release.get_future().wait();
  });
  std::thread first([&] { this->send(numbered(1, 0, 0)); });
  EXPECT_EQ(entered.get_future().wait_for(kHangDeadline), std::future_status::ready);
  auto leaving = std::async(std::launch::async, [&] {
    for (int i = 1; i < kMessages; ++i) this->send(numbered(1, 0, i));
    this->endpoint(1).detach(1);
  });
  EXPECT_EQ(leaving.wait_for(kHangDeadline), std::future_status::ready);
  release.set_value();
  first.join();
  ASSERT_TRUE(this->inbox(0).wait_down(1));
  const auto arrivals = this->inbox(0).arrivals();
  EXPECT_TRUE(arrivals.back().is_down) << "a message after its sender's peer_down";
  EXPECT_TRUE(counts_up(this->inbox(0).messages_from(1)));
}

TYPED_TEST_P(TransportSuite, WhoLeavesHearsNothingMore) {
  this->start(3);
  this->send(numbered(0, 1, 0));
  ASSERT_TRUE(this->inbox(1).wait_messages(1));
  this->endpoint(1).detach(1);
  const std::size_t heard = this->inbox(1).arrivals().size();
  ASSERT_TRUE(this->inbox(0).wait_down(1));
  this->send(numbered(0, 1, 1));
  this->endpoint(2).detach(2);
  ASSERT_TRUE(this->inbox(0).wait_down(2));
  EXPECT_EQ(this->inbox(1).arrivals().size(), heard);
  EXPECT_EQ(this->inbox(1).down_count(1), 0);
}

TYPED_TEST_P(TransportSuite, MessagesToALostRankAreDroppedAndCounted) {
  constexpr std::uint64_t kMessages = 25;
  this->start(3);
  this->endpoint(1).detach(1);
  ASSERT_TRUE(this->inbox(0).wait_down(1));
  for (std::uint64_t i = 0; i < kMessages; ++i) this->send(numbered(0, 1, 0));
  this->send(numbered(0, 2, 0));
  ASSERT_TRUE(this->inbox(2).wait_messages(1));
  ASSERT_TRUE(eventually([&] { return this->endpoint(0).counters(0).messages_sent == 1; }));
  EXPECT_EQ(this->endpoint(0).counters(0).messages_dropped, kMessages);
  EXPECT_EQ(this->endpoint(2).counters(2).messages_dropped, 0u);
}

// The receiver goes while everybody talks to it.
TYPED_TEST_P(TransportSuite, AReceiverMayLeaveDuringTraffic) {
  constexpr int kRanks = 4;
  constexpr int kMessages = 3000;
  this->start(kRanks);
  run_threads(kRanks, [&](int rank) {
    if (rank == 0) {
      EXPECT_TRUE(this->inbox(0).wait_messages(500));
      this->endpoint(0).detach(0);
      return;
    }
    for (int i = 0; i < kMessages; ++i) {
      this->send(numbered(rank, 0, i));
      this->send(numbered(rank, 1 + rank % (kRanks - 1), i));
    }
  });
  for (Rank r = 1; r < kRanks; ++r) {
    ASSERT_TRUE(this->inbox(r).wait_down(0)) << "rank " << r;
    ASSERT_TRUE(this->inbox(r).wait_messages(kMessages)) << "rank " << r;
    EXPECT_EQ(this->inbox(r).down_count(0), 1);
    EXPECT_TRUE(counts_up(this->inbox(0).messages_from(r)));
    const TransportCounters c = this->endpoint(r).counters(r);
    EXPECT_EQ(c.messages_sent + c.messages_dropped, 2u * kMessages);
  }
}

// The sender goes while its own threads still send.
TYPED_TEST_P(TransportSuite, ASenderMayLeaveDuringItsTraffic) {
  constexpr int kThreads = 3;
  constexpr int kMessages = 3000;
  this->start(3);
  run_threads(kThreads + 1, [&](int stream) {
    if (stream == kThreads) {
      EXPECT_TRUE(this->inbox(1).wait_messages(300));
      this->endpoint(0).detach(0);
      return;
    }
    for (int i = 0; i < kMessages; ++i)
      for (const Rank to : {1, 2}) this->send(numbered(0, to, i, stream));
  });
  for (const Rank r : {1, 2}) {
    ASSERT_TRUE(this->inbox(r).wait_down(0));
    std::vector<std::vector<Envelope>> streams(kThreads);
    bool down = false;
    for (const auto& a : this->inbox(r).arrivals()) {
      EXPECT_FALSE(down) << "something after peer_down at rank " << r;
      down = down || a.is_down;
      if (!a.is_down) streams[stream_of(a.envelope)].push_back(a.envelope);
    }
    for (const auto& stream : streams) EXPECT_TRUE(counts_up(stream));
  }
}

TYPED_TEST_P(TransportSuite, CountersAddUpWhatWasSent) {
  constexpr int kMessages = 40;
  this->start(3);
  Rng rng(4);
  std::uint64_t bytes = 0;
  for (int i = 0; i < kMessages; ++i) {
    Envelope e = numbered(0, 1 + i % 2, i);
    std::get<Chunk>(e.payload).data = random_bits(rng, rng() % 5000, at::kByte);
    bytes += wire_size(e);
    this->send(std::move(e));
  }
  for (const Rank r : {1, 2}) ASSERT_TRUE(this->inbox(r).wait_messages(kMessages / 2));
  ASSERT_TRUE(eventually([&] { return this->endpoint(0).counters(0).messages_sent == kMessages; }));
  EXPECT_EQ(this->endpoint(0).counters(0).bytes_sent, bytes);
  EXPECT_EQ(this->endpoint(0).counters(0).messages_dropped, 0u);
  for (const Rank r : {1, 2}) {
    EXPECT_EQ(this->endpoint(r).counters(r).messages_sent, 0u);
    EXPECT_EQ(this->endpoint(r).counters(r).bytes_sent, 0u);
  }
}

TYPED_TEST_P(TransportSuite, ADetachedInboxIsLetGo) {
  this->start(2);
  this->send(numbered(0, 1, 0));
  ASSERT_TRUE(this->inbox(1).wait_messages(1));
  const std::weak_ptr<RecordingInbox> watched = this->inboxes_.at(1);
  this->inboxes_.erase(1);
  EXPECT_FALSE(watched.expired()) << "attached inboxes are owned by the transport";
  this->endpoint(1).detach(1);
  EXPECT_TRUE(eventually([&] { return watched.expired(); }));
}

REGISTER_TYPED_TEST_SUITE_P(TransportSuite, KnowsItsWorldSize,
                            AttachRefusesForeignAndDuplicateRanks, DeliversOnceAndInOrder,
                            LargeMessagesAreNotOvertakenBySmallOnes, EveryFieldOfEveryKindArrives,
                            PayloadsArriveBitwise, ReceivedPayloadsLieInRecycledMemory,
                            ASenderCannotChangeWhatItSent, ARankMaySendToItself,
                            EveryPairIsFifoUnderConcurrentTraffic,
                            SeveralThreadsOfOneRankKeepTheirOwnOrder, AnInboxMaySendWhileItReceives,
                            AnInboxMaySendToItselfWhileItReceives, SendReturnsWhileTheReceiverHangs,
                            PeerDownComesOnceAfterThePeersLastMessage,
                            PeerDownDoesNotOvertakeQueuedMessages, WhoLeavesHearsNothingMore,
                            MessagesToALostRankAreDroppedAndCounted, AReceiverMayLeaveDuringTraffic,
                            ASenderMayLeaveDuringItsTraffic, CountersAddUpWhatWasSent,
                            ADetachedInboxIsLetGo);

}  // namespace grapevine::conformance
