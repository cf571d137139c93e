// gTop-k by recursive doubling: pairs of ranks exchange lists, add them and keep the k largest.
//
// Source: Shi et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification for
// Low Bandwidth Networks", ICDCS 2019, Algorithms 2 and 3.
//
//   Q = the largest power of two <= P
//   round 0       positions q >= Q give their list to q - Q, which merges it into its own
//   round r       p < Q exchanges its list with p xor 2^(r-1); both: list <- top-k(list + theirs)
//   last round    p gives the result to p + Q
//
// Rounds: log2 Q, two more where P > Q. Bytes of a rank p < Q: 8 k log2 Q, and 8 k more with a
// partner beyond Q; of one beyond Q: 8 k. Lists may be shorter than k.
// Staleness: 0. All lists of a round are the same bits in all ranks that share them.
//
// Rejected: the released code restores the own entries that are not in the result. An entry that an
// inner merge dropped, and whose index another subtree brought into the result, is then neither
// applied nor restored. Here each rank follows its own entries along its path: `alive_` are those
// that are in every list so far, so that the value of a list at an index is the sum of the ranks'
// alive entries there, and the first list that lacks one returns it. A folded-in rank's entries are
// those of its partner from round 0 on; entries that this merge drops stay with the partner.
//
// Values of 16 bits: every merged list is rounded, in the same way on all ranks. The rounding error
// belongs to the first of the ranks that share the list; its own entries shrink by that much.
#pragma once
#include <vector>

#include "algorithms/collectives/packed_collective.hpp"

namespace grapevine {

class ButterflyTopK final : public PackedCollective {
 public:
  explicit ButterflyTopK(CollectivePlace place);

  std::vector<OutgoingPacked> start(Packed own, PackedInbox& inbox) override;
  std::vector<OutgoingPacked> advance(PackedInbox& inbox) override;
  bool done() const override { return round_ > last_round(); }
  std::vector<std::int32_t> sources() const override { return {source()}; }
  std::vector<Packed> take_result() override { return {to_packed(list_, place_.value_type)}; }
  SparseVector take_rejected() override { return std::move(rejected_); }
  void fields(Archive& a, const PackedCheck& check) override;

 private:
  // Doubling rounds are 1 .. last_round() - 1.
  std::int32_t last_round() const { return doublings_ + 1; }
  // The rank whose list is missing in round_; -1: none.
  std::int32_t source() const;
  void take(SparseVector theirs);
  void round_list();
  // Sends the messages of this rank at the beginning of round_.
  void send(std::vector<OutgoingPacked>& out) const;

  // Constant after construction.
  std::int32_t core_ = 1;  // Q
  std::int32_t doublings_ = 0;

  std::int32_t round_ = -1;  // -1: not started
  SparseVector list_;        // of the ranks merged so far
  SparseVector alive_;       // own entries in all lists so far
  SparseVector rejected_;
};

}  // namespace grapevine
