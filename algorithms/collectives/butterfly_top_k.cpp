#include "algorithms/collectives/butterfly_top_k.hpp"

#include <utility>

namespace grapevine {

ButterflyTopK::ButterflyTopK(CollectivePlace place) : PackedCollective(std::move(place)) {
  for (; core_ * 2 <= place_.size(); core_ *= 2) ++doublings_;
}

std::vector<OutgoingPacked> ButterflyTopK::start(Packed own, PackedInbox& inbox) {
  list_ = list_of(own);
  alive_ = list_;
  round_ = 0;
  std::vector<OutgoingPacked> out;
  send(out);
  for (OutgoingPacked& more : advance(inbox)) out.push_back(std::move(more));
  return out;
}

std::vector<OutgoingPacked> ButterflyTopK::advance(PackedInbox& inbox) {
  std::vector<OutgoingPacked> out;
  while (!done()) {
    if (const std::int32_t from = source(); from >= 0) {
      auto theirs = take_list(inbox, round_, from);
      if (!theirs) break;
      take(std::move(*theirs));
    }
    ++round_;
    if (!done()) send(out);
  }
  return out;
}

std::int32_t ButterflyTopK::source() const {
  const std::int32_t p = place_.position;
  if (round_ == 0) return p + core_ < place_.size() ? p + core_ : -1;
  if (round_ == last_round()) return p >= core_ ? p - core_ : -1;
  return p < core_ ? p ^ (1 << (round_ - 1)) : -1;
}

void ButterflyTopK::send(std::vector<OutgoingPacked>& out) const {
  const std::int32_t p = place_.position;
  if (round_ == 0) {
    if (p >= core_) out.push_back(message(p - core_, 0, list_));
  } else if (round_ == last_round()) {
    if (p + core_ < place_.size()) out.push_back(message(p + core_, round_, list_));
  } else if (p < core_) {
    out.push_back(message(p ^ (1 << (round_ - 1)), round_, list_));
  }
}

void ButterflyTopK::take(SparseVector theirs) {
  if (round_ == last_round()) {
    list_ = std::move(theirs);
    return;
  }
  if (round_ == 0) {
    list_ = keep_top_k(merge(list_, theirs), place_.quotas, &rejected_);
    rejected_ = merge(rejected_, round_values(list_, place_.value_type));
    alive_ = list_;
    return;
  }
  // In the order of the positions: NaN + NaN is the first of them.
  SparseVector sum = place_.position < source() ? merge(list_, theirs) : merge(theirs, list_);
  list_ = keep_top_k(std::move(sum), place_.quotas, nullptr);
  rejected_ = merge(rejected_, intersect(alive_, list_, false));
  alive_ = intersect(alive_, list_, true);
  round_list();
}

// 2^round_ ranks share the list; the value is still the sum of their alive entries afterwards.
void ButterflyTopK::round_list() {
  SparseVector lost = round_values(list_, place_.value_type);
  const bool first = (place_.position & ((1 << round_) - 1)) == 0;
  if (!first || lost.size() == 0) return;
  rejected_ = merge(rejected_, lost);
  for (float& value : lost.values) value = -value;
  alive_ = merge(alive_, lost);
}

void ButterflyTopK::fields(Archive& a, const PackedCheck&) {
  a.whole("round", round_, 0, last_round() + 1);
  list_field(a, "list", list_);
  list_field(a, "alive", alive_);
  list_field(a, "rejected", rejected_);
}

}  // namespace grapevine
