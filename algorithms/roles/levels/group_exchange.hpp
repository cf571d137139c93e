// GroupExchange: the messages inside a node or group: the mean of one vector of each rank, one
// after the other, by the all-reduce that suits their number and size (exact_reduction.hpp), and
// parameters from the head. A part of the roles that are made of groups.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/env.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Stamps are those of this rank's messages and events. Not thread-safe: belongs to one role.
class GroupExchange {
 public:
  // The group of `members`, ascending, for vectors of d; `head` and `rank`: two of them.
  GroupExchange(std::vector<Rank> members, Rank head, Rank rank, std::int64_t d);

  const std::vector<Rank>& members() const { return members_; }
  Rank head() const { return head_; }
  bool is_head() const { return members_[static_cast<std::size_t>(position_)] == head_; }
  std::int32_t position() const { return position_; }
  bool has(Rank rank) const { return std::binary_search(members_.begin(), members_.end(), rank); }

  // Takes this rank's vector, [d], the memory of the result. `operation`: another one for each
  // mean, the same on all ranks. REQUIRES: !running().
  void start(Env& env, const Stamp& stamp, std::int64_t operation, at::Tensor vector);
  // Chunks of a later mean are kept until it starts here.
  void on_chunk(Env& env, const Stamp& stamp, Rank from, Chunk chunk);
  bool running() const { return sum_->running(); }
  bool done() const { return sum_->done(); }
  // [d], bitwise the same on all ranks. REQUIRES: done().
  at::Tensor take();

  // A mean that is open comes to nothing.
  void close(Env& env, const Stamp& stamp);

  // What this rank waits for, at least one. REQUIRES: running(), !done().
  std::vector<Awaited> awaited() const { return sum_->awaited(); }
  // Parameters of the head.
  Awaited awaited_from_head() const { return {head(), PayloadKind::parameters}; }

  // From the head to all others.
  void publish(Env& env, const Stamp& stamp, const Parameters& parameters) const;
  // Whether the message is from the head, to another rank, with a model of d.
  bool is_from_head(const Envelope& envelope, std::int64_t d) const;
  // The newest that arrived before this rank could use them.
  void keep(Parameters parameters) { next_ = std::move(parameters); }
  std::optional<Parameters> take_kept() { return std::exchange(next_, std::nullopt); }
  const std::optional<Parameters>& kept() const { return next_; }
  void wait_for_head(Env& env, const Stamp& stamp, Step step) const {
    env.record({EventKind::wait_begin, head(), stamp, step, 0, 0});
  }
  void stop_waiting(Env& env, const Stamp& stamp, Step step) const {
    env.record({EventKind::wait_end, head(), stamp, step, 0, 0});
  }

  // `operation`: of the running mean.
  void fields(Archive& a, std::int64_t operation);

 private:
  void record_mean(Env& env, const Stamp& stamp) const;

  // Constant after construction.
  std::vector<Rank> members_;
  const Rank head_;
  const std::int32_t position_;
  const std::int64_t d_;

  std::unique_ptr<Reduction> sum_;
  std::int64_t operation_ = -1;  // the newest that was started
  Rng no_chance_;                // an exact sum draws nothing
  std::optional<Parameters> next_;
};

}  // namespace grapevine
