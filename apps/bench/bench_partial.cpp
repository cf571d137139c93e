#include "apps/bench/bench_partial.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "algorithms/collectives/partial_all_reduce.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpRounds = 2;
constexpr std::uint64_t kDrawSeed = 1;

// Received messages, for the working thread.
class PayloadQueue final : public Inbox {
 public:
  void deliver(Envelope e) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(e.payload));
    changed_.notify_one();
  }
  void peer_down(Rank peer, const std::string&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_ = peer;
    changed_.notify_one();
  }

  // From here on ranks leave as they are done.
  void expect_losses() {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_leave_ = true;
  }

  // Nothing where `until` is reached first. Errors: a rank is lost and nothing is left to read.
  Expected<std::optional<Payload>> next(Rank rank, Clock::time_point until) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_lost = [this] { return lost_ >= 0 && !all_leave_; };
    changed_.wait_until(lock, until, [&] { return !waiting_.empty() || is_lost(); });
    if (waiting_.empty() && is_lost()) return grapevine::lost(rank, lost_);
    if (waiting_.empty()) return std::optional<Payload>();
    std::optional<Payload> payload(std::move(waiting_.front()));
    waiting_.pop_front();
    return payload;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Payload> waiting_;  // guarded by mutex_
  Rank lost_ = -1;               // guarded by mutex_
  bool all_leave_ = false;       // guarded by mutex_
};

class PartialRank final : public BenchRank {
 public:
  PartialRank(Transport& transport, Rank rank, const PartialBenchPlan& plan,
              OnPartialTimes on_times)
      : transport_(transport),
        rank_(rank),
        ranks_(all_ranks(transport.world_size())),
        plan_(plan),
        on_partial_times_(std::move(on_times)) {}

  Expected<void> attach() override { return transport_.attach(rank_, queue_); }

  Expected<void> run(const OnTimes&) override {
    Expected<void> done = measure_all();
    transport_.detach(rank_);
    return done;
  }

 private:
  Expected<void> measure_all() {
    for (const std::int64_t bytes : plan_.plan.bytes)
      for (const Duration skew : plan_.skews)
        if (Expected<void> done = measure(bytes, skew); !done) return done;
    queue_->expect_losses();
    const auto met = meet(0);
    return met ? Expected<void>() : Expected<void>(met.error());
  }

  Expected<void> measure(std::int64_t bytes, Duration skew) {
    std::vector<PartialTimes> times;
    for (const PartialPolicy& policy : plan_.policies)
      times.push_back({policy.name, bytes, skew, {}, 0});
    for (std::int64_t i = -kWarmUpRounds; i < plan_.plan.iterations; ++i)
      for (std::size_t p = 0; p < times.size(); ++p) {
        auto active = one_sum(plan_.policies[p], bytes, skew);
        if (!active) return active.error();
        auto mean_wait = meet(wait_);
        if (!mean_wait) return mean_wait.error();
        if (i < 0) continue;
        times[p].seconds.push_back(*mean_wait);
        times[p].active += static_cast<double>(*active);
      }
    if (rank_ == 0)
      for (PartialTimes& result : times) {
        result.active /= static_cast<double>(plan_.plan.iterations);
        on_partial_times_(std::move(result));
      }
    return {};
  }

  // One partial sum; this rank is ready at rank * skew. Leaves its wait behind and returns the
  // ranks in the sum.
  Expected<std::int64_t> one_sum(const PartialPolicy& policy, std::int64_t bytes, Duration skew) {
    const std::int64_t floats = std::max<std::int64_t>(1, bytes / std::int64_t{sizeof(float)});
    at::Tensor mine = at::ones({floats}), nothing = at::zeros({floats});
    const auto barrier = meet(0);  // the tensors exist: the clocks start
    if (!barrier) return barrier.error();
    const auto ready_at = Clock::now() + rank_ * skew;
    const Duration last_ready = (transport_.world_size() - 1) * skew;
    PartialAllReduce reduce(ranks_, rank_, operation_, trigger(policy));
    bool ready = false;
    std::optional<Clock::time_point> done_at;
    take_early(reduce);
    while (!done_at || !ready) {
      if (!ready && Clock::now() >= ready_at) {
        ready = true;
        if (!reduce.contributed()) send(reduce.post());
      }
      if (reduce.begun() && !reduce.contributed())
        send(reduce.contribute(std::move(ready ? mine : nothing), ready, 0, rng_));
      if (!done_at && reduce.done()) done_at = Clock::now();
      if (done_at && ready) break;
      const auto until = ready ? Clock::now() + plan_.plan.timeout + last_ready : ready_at;
      if (auto received = receive(reduce, until, ready); !received) return received.error();
    }
    ++operation_;
    wait_ = std::max(0.0, to_seconds(*done_at - std::min(ready_at, *done_at)));
    return check(reduce.take_result());
  }

  // A message of this operation, or of the next one, or nothing until `until`.
  Expected<void> receive(PartialAllReduce& reduce, Clock::time_point until, bool must) {
    auto payload = queue_->next(rank_, until);
    if (!payload) return payload.error();
    if (!*payload)
      return must ? Expected<void>(nothing_received(rank_, plan_.plan.timeout)) : Expected<void>();
    feed(reduce, std::move(**payload));
    return {};
  }

  void feed(PartialAllReduce& reduce, Payload payload) {
    const std::int64_t operation = PartialAllReduce::operation_of(payload);
    if (operation > reduce.operation()) return early_.push_back(std::move(payload));
    if (operation < reduce.operation()) {  // an activation that arrived by a longer path
      GRAPEVINE_CHECK(std::holds_alternative<Activate>(payload), "a chunk of operation ", operation,
                      " that is over");
      return;
    }
    if (const auto* activate = std::get_if<Activate>(&payload))
      send(reduce.on_activate(*activate));
    else
      send(reduce.on_message(rank_, std::move(payload)));
  }

  void take_early(PartialAllReduce& reduce) {
    for (Payload& payload : std::exchange(early_, {})) feed(reduce, std::move(payload));
  }

  Expected<std::int64_t> check(const PartialAllReduce::Result& result) const {
    const auto active = std::accumulate(result.tally.begin(), result.tally.end(), std::int64_t{0});
    const auto wanted = static_cast<float>(active);
    if (result.sum.min().item<float>() != wanted || result.sum.max().item<float>() != wanted)
      return Error{Errc::failed, "wrong sum on rank " + std::to_string(rank_) + ": expected " +
                                     std::to_string(active) + " everywhere"};
    return active;
  }

  // The mean of `mine` over all ranks, once all have arrived.
  Expected<double> meet(double mine) {
    PartialAllReduce barrier(ranks_, rank_, operation_, {Trigger::Kind::first_ready, 0, 1});
    take_early(barrier);
    send(barrier.post());
    const auto nanoseconds = static_cast<std::int64_t>(mine * 1e9);
    send(barrier.contribute(at::zeros({0}), nanoseconds, 0, rng_));
    while (!barrier.done())
      if (auto received = receive(barrier, Clock::now() + plan_.plan.timeout, true); !received)
        return received.error();
    ++operation_;
    const auto tally = barrier.take_result().tally;
    return static_cast<double>(std::accumulate(tally.begin(), tally.end(), std::int64_t{0})) / 1e9 /
           static_cast<double>(ranks_.size());
  }

  Trigger trigger(const PartialPolicy& policy) const {
    Trigger trigger{policy.kind, 0, policy.quorum};
    if (policy.kind == Trigger::Kind::initiator)
      trigger.position = static_cast<std::int32_t>(
          mix_seed(kDrawSeed, static_cast<std::uint64_t>(operation_)) % ranks_.size());
    return trigger;
  }

  void send(std::vector<OutgoingMessage> messages) {
    for (OutgoingMessage& message : messages) {
      Envelope envelope;
      envelope.from = rank_;
      envelope.to = message.to;
      envelope.payload = std::move(message.payload);
      transport_.send(std::move(envelope));
    }
  }

  Transport& transport_;
  const Rank rank_;
  const std::vector<Rank> ranks_;
  const PartialBenchPlan plan_;
  const OnPartialTimes on_partial_times_;
  const std::shared_ptr<PayloadQueue> queue_ = std::make_shared<PayloadQueue>();
  std::vector<Payload> early_;
  std::int64_t operation_ = 0;
  double wait_ = 0;
  Rng rng_;
};

}  // namespace

std::shared_ptr<BenchRank> make_partial_rank(Transport& transport, Rank rank,
                                             const PartialBenchPlan& plan,
                                             OnPartialTimes on_times) {
  return std::make_shared<PartialRank>(transport, rank, plan, std::move(on_times));
}

}  // namespace grapevine
