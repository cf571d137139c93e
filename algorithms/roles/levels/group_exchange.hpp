// GroupExchange: the messages inside a node or group: the mean of one vector of each rank, by ring
// all-reduce, one after the other, and parameters from the head. A part of the roles that are made
// of groups.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/collectives/ring_all_reduce.hpp"
#include "algorithms/env.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Stamps are those of this rank's messages and events. Not thread-safe: belongs to one role.
class GroupExchange {
 public:
  // The group of `members`, ascending; `head` and `rank`: two of them.
  GroupExchange(std::vector<Rank> members, Rank head, Rank rank);

  const std::vector<Rank>& members() const { return members_; }
  Rank head() const { return head_; }
  bool is_head() const { return members_[static_cast<std::size_t>(position_)] == head_; }
  std::int32_t position() const { return position_; }
  bool has(Rank rank) const { return std::binary_search(members_.begin(), members_.end(), rank); }

  // Takes this rank's vector, [d], the memory of the result. `operation`: another one for each
  // mean, the same on all ranks. REQUIRES: !running().
  void start(Env& env, const Stamp& stamp, std::int64_t operation, at::Tensor vector);
  // Chunks of a later mean are kept until it starts here.
  void on_chunk(Env& env, const Stamp& stamp, Chunk chunk);
  bool running() const { return ring_.has_value(); }
  bool done() const { return ring_ && ring_->done(); }
  // [d], bitwise the same on all ranks. REQUIRES: done().
  at::Tensor take();

  // A mean that is open comes to nothing.
  void close(Env& env, const Stamp& stamp);

  // What this rank waits for. REQUIRES: running(), !done().
  Awaited awaited() const { return ring_->awaited().front(); }
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

  // `operation`: of the running mean; `d`: elements.
  void fields(Archive& a, std::int64_t operation, std::int64_t d);

 private:
  void record_mean(Env& env, const Stamp& stamp) const;

  // Constant after construction.
  std::vector<Rank> members_;
  const Rank head_;
  const std::int32_t position_;

  std::optional<RingAllReduce> ring_;
  CollectiveInbox early_;  // a neighbour may be one mean ahead
  std::optional<Parameters> next_;
};

}  // namespace grapevine
