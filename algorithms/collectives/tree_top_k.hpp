// gTop-k up a binomial tree, and the result down again.
//
// Source: Shi et al., ICDCS 2019, Algorithm 4 (tree reduction and broadcast).
//
//   up     for b = 1, 2, 4, ...: p with bit b set sends its list to p - b and merges no more;
//          the others merge the list of p + b: list <- top-k(list + theirs)
//   down   a rank with the result sends it to the ranks whose lists it merged, the last one first
//
// Rounds: 2 ceil(log2 P). Bytes of a rank: 8 k up, but for rank 0, and 8 k for each list it took.
// All ranks together: 16 k (P-1).  Staleness: 0.
//
// Rejected: values that a merge drops, or rounds away for 16 bits, are sums over several ranks;
// only the rank that merges keeps them. (The released code restores the own entries that the result
// lacks. It loses an entry that a merge dropped and whose index another subtree brought into the
// result.)
#pragma once
#include <vector>

#include "algorithms/collectives/packed_collective.hpp"

namespace grapevine {

class TreeTopK final : public PackedCollective {
 public:
  explicit TreeTopK(CollectivePlace place) : PackedCollective(std::move(place)) {}

  std::vector<OutgoingPacked> start(Packed own, PackedInbox& inbox) override;
  std::vector<OutgoingPacked> advance(PackedInbox& inbox) override;
  bool done() const override { return stage_ == Stage::done; }
  std::vector<std::int32_t> sources() const override;
  std::vector<Packed> take_result() override { return {to_packed(list_, place_.value_type)}; }
  SparseVector take_rejected() override { return std::move(rejected_); }
  void fields(Archive& a, const PackedCheck& check) override;

 private:
  enum class Stage : std::int64_t { ready, up, down, done };

  // Whether this rank sends its list at `level`, or is the root and has merged all of them.
  bool is_child_at(std::int32_t level) const;
  bool climb(PackedInbox& inbox);
  void hand_down(std::vector<OutgoingPacked>& out) const;

  Stage stage_ = Stage::ready;
  std::int32_t level_ = 0;  // b = 2^level is next; the levels below are merged
  SparseVector list_;
  SparseVector rejected_;
};

}  // namespace grapevine
