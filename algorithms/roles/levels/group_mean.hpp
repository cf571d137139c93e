// GroupMean: the mean of one vector of each rank of a node or group, by ring all-reduce, one after
// the other. A part of the roles that are made of groups.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/collectives/ring_all_reduce.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class GroupMean {
 public:
  // `members`: consecutive ranks, ascending; `rank`: this one.
  GroupMean(const std::vector<Rank>& members, Rank rank)
      : members_(members), position_(rank - members.front()) {}

  // Takes this rank's vector, [d], the memory of the result. `operation`: another one for each
  // mean, the same on all ranks. REQUIRES: !running().
  std::vector<OutgoingMessage> start(std::int64_t operation, at::Tensor vector);
  // Chunks of a later mean are kept until it starts here.
  std::vector<OutgoingMessage> on_chunk(Chunk chunk);

  bool running() const { return ring_.has_value(); }
  bool done() const { return ring_ && ring_->done(); }
  // [d], bitwise the same on all ranks. REQUIRES: done().
  at::Tensor take();

  // `operation`: of the running mean; `d`: elements.
  void fields(Archive& a, std::int64_t operation, std::int64_t d);

 private:
  const std::vector<Rank> members_;
  const std::int32_t position_;
  std::optional<RingAllReduce> ring_;
  CollectiveInbox early_;  // a neighbour may be one mean ahead
};

}  // namespace grapevine
