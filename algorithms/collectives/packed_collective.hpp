// PackedCollective: the interface of collectives over compressed vectors.
//
// An operation turns the vector that each rank gives into one result, the same bits on all ranks.
// Ranks need not be in step: messages of later rounds and later operations wait in a PackedInbox.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/compressors/settings.hpp"
#include "algorithms/kernels/sparse_vector.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

// A message that the caller has to send, in the order returned.
struct OutgoingPacked {
  Rank to = 0;
  PackedChunk chunk;
};

// Whether a vector from a checkpoint can be folded; if not, its entry is damaged.
using PackedCheck = std::function<Expected<void>(const Packed&)>;

// Messages that have arrived and were not used yet. Not thread-safe.
class PackedInbox {
 public:
  // A second message of the same operation, round and sender is a broken invariant.
  void put(PackedChunk chunk);
  std::optional<Packed> take(std::int64_t operation, std::int32_t round, std::int32_t sender);
  std::size_t size() const { return held_.size(); }

  // Errors (bad_input): entries that are missing or damaged.
  void fields(Archive& a, const PackedCheck& check);

 private:
  std::map<std::tuple<std::int64_t, std::int32_t, std::int32_t>, Packed> held_;
};

// One rank of one operation.
struct CollectivePlace {
  std::vector<Rank> ranks;    // all that take part, the same list on all of them
  std::int32_t position = 0;  // of this rank in it
  std::int64_t operation = 0;
  std::int64_t d = 0;                     // length of the vectors
  std::vector<LayerQuota> quotas;         // entries of the result, where the operation selects
  ValueType value_type = ValueType::f32;  // of lists on their way

  std::int32_t size() const { return static_cast<std::int32_t>(ranks.size()); }
};

// Not thread-safe. One use: an object is one operation. A message that is no vector of d is a
// broken invariant.
class PackedCollective {
 public:
  explicit PackedCollective(CollectivePlace place) : place_(std::move(place)) {}
  virtual ~PackedCollective() = default;

  // Gives this rank's vector. REQUIRES: once, first.
  virtual std::vector<OutgoingPacked> start(Packed own, PackedInbox& inbox) = 0;
  // Uses the vectors that have arrived. REQUIRES: started, not done.
  virtual std::vector<OutgoingPacked> advance(PackedInbox& inbox) = 0;
  virtual bool done() const = 0;
  std::int64_t operation() const { return place_.operation; }
  // Where the next vectors come from, by position. REQUIRES: started, not done.
  virtual std::vector<std::int32_t> sources() const = 0;

  // The vectors that make up the result, to be added in this order. REQUIRES: done(), once.
  virtual std::vector<Packed> take_result() = 0;
  // Entries that this rank has to keep, so that over all ranks
  //   sum of the given vectors = result + sum of the rejected entries,
  // exactly where no sum is rounded. REQUIRES: done(), once.
  virtual SparseVector take_rejected() = 0;

  // The state since construction, for a fresh object with the same arguments. Errors (bad_input): a
  // damaged entry.
  virtual void fields(Archive& a, const PackedCheck& check) = 0;

 protected:
  OutgoingPacked message(std::int32_t to, std::int32_t round, Packed data) const {
    return {place_.ranks[static_cast<std::size_t>(to)],
            PackedChunk{place_.operation, round, place_.position, std::move(data)}};
  }
  OutgoingPacked message(std::int32_t to, std::int32_t round, const SparseVector& list) const {
    return message(to, round, to_packed(list, place_.value_type));
  }
  // The list that `sender` sent in `round`, where it has arrived.
  std::optional<SparseVector> take_list(PackedInbox& inbox, std::int32_t round,
                                        std::int32_t sender) const;
  SparseVector list_of(const Packed& packed) const;
  // The fields of a list of d, under "<name>.".
  void list_field(Archive& a, const std::string& name, SparseVector& list) const;

  const CollectivePlace place_;
};

// See packed_all_gather.hpp, butterfly_top_k.hpp, tree_top_k.hpp.
std::unique_ptr<PackedCollective> make_packed_collective(SparseReduce reduce,
                                                         CollectivePlace place);

// Refuses vectors that `check` refuses.
void packed_fields(Archive& a, Packed& packed, const PackedCheck& check);

}  // namespace grapevine
