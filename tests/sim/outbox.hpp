// An Env without a world.
#pragma once
#include <deque>
#include <utility>

#include "algorithms/env.hpp"
#include "messages/random.hpp"

namespace grapevine::sim {

// Env of a role that is alone: keeps what it sends. Time stands still.
class Outbox final : public Env {
 public:
  Outbox(Rank rank, std::int32_t ranks) : rank_(rank) {
    members_.alive.assign(static_cast<std::size_t>(ranks), true);
  }
  Rank rank() const override { return rank_; }
  const Membership& membership() const override { return members_; }
  Timestamp now() const override { return Timestamp(0); }
  Rng& rng() override { return rng_; }
  void send(Rank to, Stamp stamp, Payload payload) override {
    sent.push_back({rank_, to, stamp, std::move(payload)});
  }
  void compute(Step, FrozenTensor) override {}
  void recycle(FrozenTensor) override {}
  void after(Duration, TimerId) override {}
  void record(const Event&) override {}
  void finished() override {}

  std::deque<Envelope> sent;

 private:
  const Rank rank_;
  Membership members_;
  Rng rng_{1};
};

}  // namespace grapevine::sim
