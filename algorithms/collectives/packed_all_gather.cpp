#include "algorithms/collectives/packed_all_gather.hpp"

#include <string>
#include <utility>

namespace grapevine {

PackedAllGather::PackedAllGather(CollectivePlace place, bool reselect)
    : PackedCollective(std::move(place)),
      reselect_(reselect),
      gathered_(place_.ranks.size()),
      missing_(place_.size()) {}

std::vector<OutgoingPacked> PackedAllGather::start(Packed own, PackedInbox& inbox) {
  std::vector<OutgoingPacked> out;
  for (std::int32_t i = 1; i < place_.size(); ++i)
    out.push_back(message((place_.position + i) % place_.size(), 0, own));
  gathered_[static_cast<std::size_t>(place_.position)] = std::move(own);
  --missing_;
  advance(inbox);
  return out;
}

std::vector<OutgoingPacked> PackedAllGather::advance(PackedInbox& inbox) {
  for (std::int32_t sender = 0; sender < place_.size(); ++sender) {
    std::optional<Packed>& place = gathered_[static_cast<std::size_t>(sender)];
    if (place) continue;
    place = inbox.take(place_.operation, 0, sender);
    missing_ -= place.has_value();
  }
  return {};
}

std::vector<std::int32_t> PackedAllGather::sources() const {
  std::vector<std::int32_t> missing;
  for (std::int32_t sender = 0; sender < place_.size(); ++sender)
    if (!gathered_[static_cast<std::size_t>(sender)]) missing.push_back(sender);
  return missing;
}

// Every rank does this for itself, in the same order, once the result is wanted: until then a
// checkpoint holds the lists.
void PackedAllGather::reselect() {
  if (!reselect_ || std::exchange(reselected_, true)) return;
  std::vector<SparseVector> lists;
  for (const std::optional<Packed>& packed : gathered_) lists.push_back(list_of(*packed));
  const SparseVector own = lists[static_cast<std::size_t>(place_.position)];
  const SparseVector sum = keep_top_k(merge_all(std::move(lists)), place_.quotas, nullptr);
  rejected_ = intersect(own, sum, false);
  gathered_.assign(1, to_packed(sum));
}

SparseVector PackedAllGather::take_rejected() {
  reselect();
  return std::move(rejected_);
}

std::vector<Packed> PackedAllGather::take_result() {
  reselect();
  std::vector<Packed> result;
  for (std::optional<Packed>& packed : gathered_) result.push_back(*std::move(packed));
  return result;
}

void PackedAllGather::fields(Archive& a, const PackedCheck& check) {
  std::int32_t missing = place_.size();
  for (std::size_t i = 0; i < gathered_.size(); ++i) {
    const std::string name = std::to_string(i);
    if (!a.present(name, gathered_[i])) continue;
    a.nested(name, [&](Archive& inner) { packed_fields(inner, *gathered_[i], check); });
    --missing;
  }
  if (!a.loads()) return;
  missing_ = missing;
  if (!gathered_[static_cast<std::size_t>(place_.position)])
    a.fail(bad_input(
        "the saved state lacks this rank's own vector: the checkpoint is damaged, resume from "
        "another one"));
}

}  // namespace grapevine
