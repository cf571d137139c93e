#include "algorithms/graphs/gossip_graph.hpp"

#include <algorithm>
#include <deque>
#include <set>

#include "algorithms/graphs/topology_type.hpp"

namespace grapevine {
namespace {

constexpr char kFromFile[] = "file:";

// The ranks that a walk has reached.
class Reached {
 public:
  explicit Reached(std::int32_t ranks)
      : reached_(static_cast<std::size_t>(ranks), false), left_(ranks) {}

  bool has(Rank rank) const { return reached_[static_cast<std::size_t>(rank)]; }

  // Adds `first` and all ranks that next(rank) leads to from there. Stops once all ranks are
  // reached: dense graphs need only a few of their lists.
  template <class Next>
  void add_from(Rank first, const Next& next) {
    std::vector<Rank> open;
    add(first, open);
    while (!open.empty() && left_ > 0) {
      const Rank rank = open.back();
      open.pop_back();
      for (const Rank peer : next(rank)) add(peer, open);
    }
  }

 private:
  void add(Rank rank, std::vector<Rank>& open) {
    if (has(rank)) return;
    reached_[static_cast<std::size_t>(rank)] = true;
    --left_;
    open.push_back(rank);
  }

  std::vector<bool> reached_;
  std::int32_t left_;
};

}  // namespace

Expected<std::shared_ptr<const GossipGraph>> GossipGraph::make(const std::string& topology,
                                                               const CountSchedule& peers,
                                                               std::int32_t ranks,
                                                               double rounds_per_epoch,
                                                               double first_epoch) {
  auto graph = std::make_shared<GossipGraph>();
  graph->topology_ = topology;
  graph->ranks_ = ranks;
  graph->peers_ = peers;
  graph->rounds_per_epoch_ = rounds_per_epoch;
  graph->first_epoch_ = first_epoch;
  for (const std::int64_t count : peers.values()) {
    auto made = make_topology(topology, ranks, static_cast<std::int32_t>(count));
    if (!made) return made.error();
    graph->by_count_[count] = std::move(*made);
  }
  return std::shared_ptr<const GossipGraph>(std::move(graph));
}

const Topology& GossipGraph::topology_at(std::int64_t round) const {
  return *by_count_.at(peers_.at(first_epoch_ + static_cast<double>(round) / rounds_per_epoch_));
}

const std::vector<Rank>& GossipGraph::out(std::int64_t round, Rank rank) const {
  return topology_at(round).out(round, rank);
}

const std::vector<Rank>& GossipGraph::in(std::int64_t round, Rank rank) const {
  return topology_at(round).in(round, rank);
}

std::vector<Rank> GossipGraph::neighbors(std::int64_t round, Rank rank) const {
  return topology_at(round).neighbors(round, rank);
}

template <class Lists>
std::vector<Rank> GossipGraph::union_of_rounds(Rank rank, Lists lists) const {
  std::set<Rank> all;
  for (const auto& [count, topology] : by_count_)
    for (std::int64_t round = 0; round < topology->period(); ++round)
      for (const Rank peer : ((*topology).*lists)(round, rank)) all.insert(peer);
  return {all.begin(), all.end()};
}

std::vector<Rank> GossipGraph::all_neighbors(Rank rank) const {
  return union_of_rounds(rank, &Topology::neighbors);
}

std::int32_t GossipGraph::component_count() const {
  Reached reached(ranks_);
  std::int32_t count = 0;
  for (Rank first = 0; first < ranks_; ++first) {
    if (reached.has(first)) continue;
    ++count;
    reached.add_from(first, [this](Rank rank) { return all_neighbors(rank); });
  }
  return count;
}

Expected<void> GossipGraph::check_strongly_connected() const {
  // Where every rank has as many sources as destinations, as in all graphs but those from files and
  // from outside, each edge has a path back.
  if (topology_.rfind(kFromFile, 0) != 0 && registered_topology(topology_) == nullptr) return {};
  Reached seen(ranks_);
  for (Rank first = 0; first < ranks_; ++first) {
    if (seen.has(first)) continue;
    seen.add_from(first, [this](Rank rank) { return all_neighbors(rank); });
    Reached forward(ranks_), backward(ranks_);  // with a path from `first`, and to it
    forward.add_from(first, [this](Rank rank) { return union_of_rounds(rank, &Topology::out); });
    backward.add_from(first, [this](Rank rank) { return union_of_rounds(rank, &Topology::in); });
    for (Rank rank = 0; rank < ranks_; ++rank) {
      if (forward.has(rank) == backward.has(rank)) continue;
      const Rank giver = forward.has(rank) ? first : rank;
      const Rank taker = forward.has(rank) ? rank : first;
      return bad_input("topology '" + topology_ + "' with " + std::to_string(ranks_) +
                       " ranks has no path from rank " + std::to_string(taker) + " to rank " +
                       std::to_string(giver) + ", only one in the other direction: rank " +
                       std::to_string(giver) +
                       " would give shares of its model away and get none back; add edges");
    }
  }
  return {};
}

namespace {

// The bipartite topologies that exist for this number of ranks.
std::string bipartite_names(std::int32_t ranks) {
  std::vector<std::string> names;
  for (const char* name : {"bipartite-exponential", "bipartite-linear", "hypercube", "grid2d"})
    if (make_topology(name, ranks, 1).ok()) names.emplace_back(name);
  std::string text;
  for (const std::string& name : names) text += name + (&name == &names.back() ? " " : ", ");
  return text + "or star";
}

}  // namespace

Expected<std::vector<bool>> GossipGraph::bipartition() const {
  std::vector<int> side(static_cast<std::size_t>(ranks_), -1);
  const auto side_of = [&side](Rank rank) -> int& { return side[static_cast<std::size_t>(rank)]; };
  std::deque<Rank> queue;
  for (Rank first = 0; first < ranks_; ++first) {
    if (side_of(first) >= 0) continue;
    if (first > 0)
      return bad_input("topology '" + topology_ + "' with " + std::to_string(ranks_) +
                       " ranks is not connected, no path joins rank " + std::to_string(first) +
                       " and rank 0: add edges");
    side_of(first) = 0;
    queue.push_back(first);
    while (!queue.empty()) {
      const Rank rank = queue.front();
      queue.pop_front();
      for (const Rank peer : all_neighbors(rank)) {
        if (side_of(peer) == side_of(rank))
          return bad_input("topology '" + topology_ + "' with " + std::to_string(ranks_) +
                           " ranks is not bipartite, ranks " + std::to_string(rank) + " and " +
                           std::to_string(peer) + " would ask each other: choose " +
                           bipartite_names(ranks_));
        if (side_of(peer) >= 0) continue;
        side_of(peer) = 1 - side_of(rank);
        queue.push_back(peer);
      }
    }
  }
  return std::vector<bool>(side.begin(), side.end());
}

std::int64_t GossipGraph::period(std::int64_t round) const { return topology_at(round).period(); }

}  // namespace grapevine
