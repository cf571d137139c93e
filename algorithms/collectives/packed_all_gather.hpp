// All-gather: every rank gets every rank's vector, by any compressor. With `reselect`, for sparse
// vectors: the k largest entries of the sum.
//
// Sources: Shi et al., IJCAI 2019 (Top-k); ICDCS 2019, section 2 (the same with reselection).
// Rounds: 1. Messages of a rank: P-1, to its right neighbour first. Bytes: (P-1) times its vector.
// Rejected: with reselection the own entries whose index is not in the result.
// Staleness: 0. Deviation: no ring or doubling. No rank waits for another to forward, the bytes are
// the same, and a vector is sent to all without a copy.
#pragma once
#include <optional>
#include <vector>

#include "algorithms/collectives/packed_collective.hpp"

namespace grapevine {

class PackedAllGather final : public PackedCollective {
 public:
  PackedAllGather(CollectivePlace place, bool reselect);

  std::vector<OutgoingPacked> start(Packed own, PackedInbox& inbox) override;
  std::vector<OutgoingPacked> advance(PackedInbox& inbox) override;
  bool done() const override { return missing_ == 0; }
  std::vector<std::int32_t> sources() const override;
  // Without reselection by position.
  std::vector<Packed> take_result() override;
  SparseVector take_rejected() override;
  void fields(Archive& a, const PackedCheck& check) override;

 private:
  void reselect();

  const bool reselect_;
  std::vector<std::optional<Packed>> gathered_;  // by position
  std::int32_t missing_;
  bool reselected_ = false;
  SparseVector rejected_;
};

}  // namespace grapevine
