#include "algorithms/wiring/nodes.hpp"

#include <algorithm>
#include <iterator>

namespace grapevine {

std::optional<std::int32_t> position_of(Rank rank, const std::vector<Rank>& ranks) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) return std::nullopt;
  return static_cast<std::int32_t>(at - ranks.begin());
}

std::vector<std::int32_t> positions_before(const std::vector<Rank>& ranks,
                                           const std::vector<Rank>& before,
                                           const std::vector<Rank>& joining) {
  std::vector<std::int32_t> positions;
  for (const Rank rank : ranks) {
    const bool joins = std::binary_search(joining.begin(), joining.end(), rank);
    positions.push_back(joins ? -1 : position_of(rank, before).value_or(-1));
  }
  return positions;
}

std::vector<Rank> first_of_each_node(const std::vector<Rank>& members, std::int32_t size) {
  std::vector<Rank> heads;
  for (const Rank rank : members)
    if (heads.empty() || heads.back() / size != rank / size) heads.push_back(rank);
  return heads;
}

std::vector<Rank> members_of_node(const std::vector<Rank>& members, Rank rank, std::int32_t size) {
  std::vector<Rank> node;
  std::copy_if(members.begin(), members.end(), std::back_inserter(node),
               [&](Rank member) { return member / size == rank / size; });
  return node;
}

bool fits_nodes(const TrainingRanks& ranks, std::int32_t size) {
  if (size <= 1) return ranks.heads.empty();
  const std::vector<Rank> firsts = first_of_each_node(ranks.members, size);
  return std::equal(firsts.begin(), firsts.end(), ranks.heads.begin(), ranks.heads.end(),
                    [size](Rank first, Rank head) { return first / size == head / size; });
}

std::vector<Rank> exchanging_of(const std::vector<Rank>& ranks, const std::vector<Rank>& heads) {
  if (heads.empty()) return ranks;
  std::vector<Rank> exchanging;
  std::set_intersection(ranks.begin(), ranks.end(), heads.begin(), heads.end(),
                        std::back_inserter(exchanging));
  return exchanging;
}

NodeChange change_nodes(std::int32_t size, const std::vector<Rank>& members,
                        const std::vector<Rank>& heads_before, const std::vector<Rank>& joining) {
  NodeChange change;
  std::vector<Rank> kept;  // heads
  std::set_intersection(heads_before.begin(), heads_before.end(), members.begin(), members.end(),
                        std::back_inserter(kept));
  const auto joins = [&joining](Rank rank) {
    return std::binary_search(joining.begin(), joining.end(), rank);
  };
  kept.erase(std::remove_if(kept.begin(), kept.end(), joins), kept.end());
  for (const Rank first : first_of_each_node(members, size)) {
    const auto head = std::find_if(kept.begin(), kept.end(),
                                   [&](Rank rank) { return rank / size == first / size; });
    change.heads.push_back(head == kept.end() ? first : *head);
    for (const Rank rank : members_of_node(members, first, size))
      if (head == kept.end() || joins(rank)) change.joining.push_back(rank);
  }
  return change;
}

}  // namespace grapevine
