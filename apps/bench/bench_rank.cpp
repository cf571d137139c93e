#include "apps/bench/bench_rank.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/collectives/exact_reduction.hpp"
#include "algorithms/collectives/reduction.hpp"
#include "messages/random.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 2;

Envelope envelope(Rank from, Rank to, Payload payload) {
  Envelope e;
  e.from = from;
  e.to = to;
  e.payload = std::move(payload);
  return e;
}

// ---- Point to point

// The request of a message to its receiver, in Chunk::round.
constexpr std::int32_t kNothing = 0;
constexpr std::int32_t kAnswer = 1;
constexpr std::int32_t kEnd = 2;

FrozenTensor bytes_of(std::int64_t count) {
  at::Tensor bytes = empty_to_send({count}, at::kByte);
  bytes.zero_();
  return FrozenTensor::freeze(std::move(bytes));
}

// Rank 0 sends, rank 1 answers. All of a measurement happens on the transport's threads, as an
// actor's replies would; the thread of run() waits for its end.
class PointToPoint final : public BenchRank,
                           public Inbox,
                           public std::enable_shared_from_this<PointToPoint> {
 public:
  PointToPoint(Transport& transport, Rank rank, const BenchPlan& plan)
      : transport_(transport), rank_(rank), plan_(plan) {}

  Expected<void> attach() override { return transport_.attach(rank_, shared_from_this()); }

  Expected<void> run(const OnTimes& on_times) override {
    Expected<void> done = rank_ == 0 ? measure(on_times) : wait([this] { return over_; });
    transport_.detach(rank_);
    return done;
  }

 private:
  Expected<void> measure(const OnTimes& on_times) {
    for (const std::int64_t bytes : plan_.bytes) {
      begin(bytes);
      const auto count = static_cast<std::size_t>(plan_.iterations + kWarmUps);
      Expected<void> done = wait([&] { return seconds_.size() == count; });
      if (!done) return done;
      seconds_.erase(seconds_.begin(), seconds_.begin() + kWarmUps);
      on_times(bytes, std::move(seconds_));
    }
    for (Rank peer = 1; peer < transport_.world_size(); ++peer)
      transport_.send(envelope(0, peer, Chunk{0, kEnd, 0, bytes_of(0)}));
    return {};
  }

  void begin(std::int64_t bytes) {
    seconds_.clear();
    data_ = bytes_of(bytes);
    burst_ = point_to_point_burst(bytes);
    send_burst();
  }

  void send_burst() {
    start_ = Clock::now();
    for (std::int64_t i = 1; i <= burst_; ++i)
      transport_.send(envelope(0, 1, Chunk{0, i == burst_ ? kAnswer : kNothing, 0, data_}));
  }

  void deliver(Envelope e) override {
    const auto& chunk = std::get<Chunk>(e.payload);
    if (rank_ == 0) return take_answer();
    heard_.store(true, std::memory_order_relaxed);
    if (chunk.round == kAnswer)
      transport_.send(envelope(rank_, e.from, Chunk{0, kNothing, 0, answer_}));
    if (chunk.round != kEnd) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  void take_answer() {
    bool again = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      heard_.store(true, std::memory_order_relaxed);
      seconds_.push_back(to_seconds(Clock::now() - start_) / static_cast<double>(burst_));
      again = seconds_.size() < static_cast<std::size_t>(plan_.iterations + kWarmUps);
      if (!again) changed_.notify_all();
    }
    if (again) send_burst();
  }

  void peer_down(Rank peer, const std::string&) override {
    if (peer != partner()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = true;
    changed_.notify_all();
  }

  // Rank 0 and 1 give up when nothing arrives for `timeout`; the others are idle.
  template <class Done>
  Expected<void> wait(const Done& done) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      heard_.store(false, std::memory_order_relaxed);
      const bool woken = changed_.wait_for(lock, plan_.timeout, [&] { return done() || lost_; });
      if (done()) return {};
      if (lost_) return grapevine::lost(rank_, partner());
      if (!woken && rank_ <= 1 && !heard_.load(std::memory_order_relaxed))
        return nothing_received(rank_, plan_.timeout);
    }
  }

  // The rank whose end ends this one: the others see an end through them.
  Rank partner() const { return rank_ == 0 ? 1 : 0; }

  Transport& transport_;
  const Rank rank_;
  const BenchPlan plan_;
  const FrozenTensor answer_ = bytes_of(kRoundTripBytes);

  // Of the measurement under way: one thread at a time, from begin() to the last answer.
  FrozenTensor data_;
  std::int64_t burst_ = 1;
  Clock::time_point start_;

  std::atomic<bool> heard_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<double> seconds_;  // guarded by mutex_
  bool over_ = false;            // guarded by mutex_
  bool lost_ = false;            // guarded by mutex_
};

// ---- All-reduce

// Messages of all other ranks.
class MessageQueue final : public Inbox {
 public:
  void deliver(Envelope envelope) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(envelope));
    }
    changed_.notify_one();
  }
  void peer_down(Rank peer, const std::string& /*reason*/) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      lost_.insert(peer);
    }
    changed_.notify_one();
  }

  // Ranks that are not awaited may have left.
  Expected<Envelope> next(Rank rank, Duration timeout, const std::vector<Awaited>& awaited) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto missing = [&] {
      return std::find_if(awaited.begin(), awaited.end(),
                          [this](const Awaited& one) { return lost_.count(one.from) > 0; });
    };
    const bool woken = changed_.wait_for(
        lock, timeout, [&] { return !waiting_.empty() || missing() != awaited.end(); });
    if (!woken) return nothing_received(rank, timeout);
    if (waiting_.empty()) return grapevine::lost(rank, missing()->from);
    Envelope envelope = std::move(waiting_.front());
    waiting_.pop_front();
    return envelope;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Envelope> waiting_;  // guarded by mutex_
  std::set<Rank> lost_;           // guarded by mutex_
};

// In [-1, 1), the same on every rank: all can compute the expected sum.
float pseudo_random(Rank rank, std::int64_t i) {
  const std::uint64_t bits =
      mix_seed(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
  return static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31F;
}

// Of ranks first, first + 1, …, around the ring.
float sum_from(std::int32_t first, std::int32_t ranks, std::int64_t i) {
  float sum = pseudo_random(first, i);
  for (std::int32_t hop = 1; hop < ranks; ++hop) sum += pseudo_random((first + hop) % ranks, i);
  return sum;
}

// Of `count` ranks from `first` on, a power of two, by pairs, pairs of pairs and so on; the others,
// of all `ranks`, are added to those `core` before them.
float sum_by_pairs(std::int32_t first, std::int32_t count, std::int32_t core, std::int32_t ranks,
                   std::int64_t i) {
  if (count > 1)
    return sum_by_pairs(first, count / 2, core, ranks, i) +
           sum_by_pairs(first + count / 2, count / 2, core, ranks, i);
  const float own = pseudo_random(first, i);
  return first + core < ranks ? own + pseudo_random(first + core, i) : own;
}

// The sum of element i, taken in the order that the all-reduce promises: around the ring the rank
// that slice `slice` is named after comes first.
float exact_sum(std::int32_t ranks, std::int32_t slice, std::int64_t i, ExactReduce algorithm) {
  if (algorithm != ExactReduce::doubling)
    return sum_from(algorithm == ExactReduce::ring ? slice : 0, ranks, i);
  std::int32_t core = 1;
  while (2 * core <= ranks) core *= 2;
  return sum_by_pairs(0, core, core, ranks, i);
}

// To the last bit: 0.0F and -0.0F, which compare equal, are different sums.
std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

Expected<void> check_sum(const at::Tensor& sum, std::int32_t ranks, Rank rank,
                         ExactReduce algorithm) {
  const float* values = sum.data_ptr<float>();
  for (std::int32_t slice = 0; slice < ranks; ++slice) {
    const std::int64_t end = sum.numel() * (slice + 1) / ranks;
    for (std::int64_t i = sum.numel() * slice / ranks; i < end; ++i) {
      const float wanted = exact_sum(ranks, slice, i, algorithm);
      if (bits_of(wanted) != bits_of(values[i]))
        return Error{Errc::failed, "wrong sum: element " + std::to_string(i) + " on rank " +
                                       std::to_string(rank) + " is " + std::to_string(values[i]) +
                                       ", expected " + std::to_string(wanted)};
    }
  }
  return {};
}

class AllReduce final : public BenchRank {
 public:
  AllReduce(Transport& transport, Rank rank, const BenchPlan& plan)
      : transport_(transport),
        rank_(rank),
        plan_(plan),
        queue_(std::make_shared<MessageQueue>()),
        reduction_(
            make_exact_reduction(all_ranks(transport.world_size()), rank, -1, plan.all_reduce)) {}

  Expected<void> attach() override { return transport_.attach(rank_, queue_); }

  Expected<void> run(const OnTimes& on_times) override {
    Expected<void> done = measure(on_times);
    transport_.detach(rank_);
    return done;
  }

 private:
  std::int32_t ranks() const { return transport_.world_size(); }

  Expected<void> measure(const OnTimes& on_times) {
    for (const std::int64_t bytes : plan_.bytes) {
      std::vector<double> seconds;
      if (Expected<void> done = measure(bytes, seconds); !done) return done;
      if (rank_ == 0) on_times(bytes, std::move(seconds));
    }
    return barrier();
  }

  Expected<void> measure(std::int64_t bytes, std::vector<double>& seconds) {
    const std::int64_t floats = std::max<std::int64_t>(1, bytes / std::int64_t{sizeof(float)});
    at::Tensor values = empty_to_send({floats}, at::kFloat);
    for (std::int64_t i = 0; i < floats; ++i) values.data_ptr<float>()[i] = pseudo_random(rank_, i);
    if (Expected<void> done = reduce(values); !done) return done;
    const ExactReduce algorithm =
        all_reduce_for(plan_.all_reduce, ranks(), floats * std::int64_t{sizeof(float)});
    if (Expected<void> right = check_sum(values, ranks(), rank_, algorithm); !right) return right;
    for (std::int64_t i = -kWarmUps; i < plan_.iterations; ++i) {
      values.fill_(1);
      if (Expected<void> done = barrier(); !done) return done;
      const auto start = Clock::now();
      if (Expected<void> done = reduce(values); !done) return done;
      if (i >= 0) seconds.push_back(to_seconds(Clock::now() - start));
    }
    return {};
  }

  // No rank has the sum of nothing before all have begun.
  Expected<void> barrier() {
    at::Tensor nothing = at::empty({0}, at::TensorOptions(at::kFloat));
    return reduce(nothing);
  }

  // values <- their sum over all ranks.
  Expected<void> reduce(at::Tensor& values) {
    send(reduction_->start(operation_++, 0, std::move(values), rng_));
    while (!reduction_->done()) {
      Expected<Envelope> envelope = queue_->next(rank_, plan_.timeout, reduction_->awaited());
      if (!envelope) return envelope.error();
      const Rank from = envelope->from;
      send(reduction_->on_message(from, std::move(envelope->payload)));
    }
    values = reduction_->take_sum();
    return {};
  }

  void send(std::vector<OutgoingMessage> messages) {
    for (OutgoingMessage& message : messages)
      transport_.send(envelope(rank_, message.to, std::move(message.payload)));
  }

  Transport& transport_;
  const Rank rank_;
  const BenchPlan plan_;
  const std::shared_ptr<MessageQueue> queue_;
  const std::unique_ptr<Reduction> reduction_;  // of all operations, one after the other
  Rng rng_;
  std::int64_t operation_ = 0;
};

}  // namespace

Error nothing_received(Rank rank, Duration timeout) {
  return {Errc::timeout, "rank " + std::to_string(rank) + " has received nothing for " +
                             std::to_string(static_cast<int>(to_seconds(timeout))) +
                             " s: another rank hangs, or the machine is overloaded"};
}

Error lost(Rank rank, Rank peer) {
  return {Errc::peer_down, "rank " + std::to_string(rank) + " has lost rank " +
                               std::to_string(peer) + ": see its error"};
}

std::int64_t point_to_point_burst(std::int64_t bytes) {
  constexpr std::int64_t kBurstBytes = std::int64_t{64} << 20;
  constexpr std::int64_t kLeast = 4;
  constexpr std::int64_t kMost = 64;
  if (bytes <= kRoundTripBytes) return 1;
  return std::clamp(kBurstBytes / bytes, kLeast, kMost);
}

std::shared_ptr<BenchRank> make_point_to_point_rank(Transport& transport, Rank rank,
                                                    const BenchPlan& plan) {
  return std::make_shared<PointToPoint>(transport, rank, plan);
}

std::shared_ptr<BenchRank> make_all_reduce_rank(Transport& transport, Rank rank,
                                                const BenchPlan& plan) {
  return std::make_shared<AllReduce>(transport, rank, plan);
}

}  // namespace grapevine
