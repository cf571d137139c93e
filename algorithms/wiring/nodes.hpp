// The nodes of a hierarchy, and what becomes of them where members are lost and join.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// The ranks of a run that train, ascending, and those that serve them. Rank r is in node r / R of R
// ranks, of which some may be lost.
struct TrainingRanks {
  std::vector<Rank> members;
  // Of them one of each node, which exchanges for it, ascending; empty without a hierarchy.
  std::vector<Rank> heads;
  // The parameter servers, which follow all ranks that ever trained; empty where there are none.
  std::vector<Rank> servers = {};
};

// The number of `rank` among ascending ranks, from 0; none: it is not one of them.
std::optional<std::int32_t> position_of(Rank rank, const std::vector<Rank>& ranks);

// Of each of `ranks` its position among those `before`; -1: it was none of them, or is one of
// `joining`. All ascending.
std::vector<std::int32_t> positions_before(const std::vector<Rank>& ranks,
                                           const std::vector<Rank>& before,
                                           const std::vector<Rank>& joining);

// The first member of each node. `size`: R.
std::vector<Rank> first_of_each_node(const std::vector<Rank>& members, std::int32_t size);
// The members of the node of `rank`.
std::vector<Rank> members_of_node(const std::vector<Rank>& members, Rank rank, std::int32_t size);

// Whether each node has one head, or there are neither nodes nor heads.
bool fits_nodes(const TrainingRanks& ranks, std::int32_t size);
// Those of `ranks` that exchange: all without a hierarchy.
std::vector<Rank> exchanging_of(const std::vector<Rank>& ranks, const std::vector<Rank>& heads);

struct NodeChange {
  std::vector<Rank> heads;    // of the members, ascending
  std::vector<Rank> joining;  // without a state that counts, ascending
};
// A node keeps its head. Where that is lost, all its members join anew behind the first of them:
// what they have is a copy of its model, and not the rest of its state. `joining`: ascending.
// REQUIRES: size > 1.
NodeChange change_nodes(std::int32_t size, const std::vector<Rank>& members,
                        const std::vector<Rank>& heads_before, const std::vector<Rank>& joining);

}  // namespace grapevine
