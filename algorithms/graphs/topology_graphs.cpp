#include "algorithms/graphs/topology_graphs.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

using Edge = std::pair<Rank, Rank>;

// Uniform over 0 .. bound-1 up to a bias of bound / 2^64. The standard distributions differ between
// libraries; a seed must give the same graph everywhere.
std::size_t draw(Rng& rng, std::size_t bound) { return static_cast<std::size_t>(rng() % bound); }

std::vector<Rank> random_order(std::int32_t ranks, Rng& rng) {
  std::vector<Rank> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(rng, i)]);
  return order;
}

NeighborLists to_lists(std::int32_t ranks, const std::vector<Edge>& edges) {
  NeighborLists lists(static_cast<std::size_t>(ranks));
  for (const auto& [a, b] : edges) {
    lists[static_cast<std::size_t>(a)].push_back(b);
    lists[static_cast<std::size_t>(b)].push_back(a);
  }
  for (auto& list : lists) std::sort(list.begin(), list.end());
  return lists;
}

bool connected(const NeighborLists& lists) {
  std::vector<bool> reached(lists.size(), false);
  std::vector<std::size_t> open = {0};
  reached[0] = true;
  std::size_t count = 1;
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    for (const Rank neighbor : lists[i]) {
      const auto j = static_cast<std::size_t>(neighbor);
      if (reached[j]) continue;
      reached[j] = true;
      ++count;
      open.push_back(j);
    }
  }
  return count == lists.size();
}

// Undirected edges, searched by pair in either order.
class EdgeSet {
 public:
  explicit EdgeSet(const std::vector<Edge>& edges) {
    for (const Edge& edge : edges) insert(edge);
  }
  void insert(Edge edge) { keys_.insert(key(edge)); }
  void erase(Edge edge) { keys_.erase(key(edge)); }
  bool contains(Edge edge) const { return keys_.count(key(edge)) > 0; }

 private:
  static std::uint64_t key(Edge edge) {
    const auto [low, high] = std::minmax(edge.first, edge.second);
    return (static_cast<std::uint64_t>(low) << 32) | static_cast<std::uint32_t>(high);
  }
  std::unordered_set<std::uint64_t> keys_;
};

// Every rank to its nearest `degree` ranks on a randomly ordered circle.
std::vector<Edge> circulant(std::int32_t ranks, std::int32_t degree, Rng& rng) {
  const std::vector<Rank> order = random_order(ranks, rng);
  const std::size_t n = order.size();
  std::vector<Edge> edges;
  for (std::size_t offset = 1; offset <= static_cast<std::size_t>(degree) / 2; ++offset) {
    for (std::size_t i = 0; i < n; ++i) edges.emplace_back(order[i], order[(i + offset) % n]);
  }
  if (degree % 2 == 1) {
    for (std::size_t i = 0; i < n / 2; ++i) edges.emplace_back(order[i], order[i + n / 2]);
  }
  return edges;
}

// Replaces random pairs ab, cd by ad, cb: degrees stay, and so does simplicity.
void switch_edges(std::vector<Edge>& edges, EdgeSet& present, Rng& rng) {
  for (std::size_t attempt = 0; attempt < 10 * edges.size(); ++attempt) {
    Edge& first = edges[draw(rng, edges.size())];
    Edge& second = edges[draw(rng, edges.size())];
    if (rng() % 2 == 0) std::swap(second.first, second.second);
    const Edge ad{first.first, second.second};
    const Edge cb{second.first, first.second};
    if (ad.first == ad.second || cb.first == cb.second) continue;
    if (present.contains(ad) || present.contains(cb)) continue;
    present.erase(first);
    present.erase(second);
    present.insert(ad);
    present.insert(cb);
    first = ad;
    second = cb;
  }
}

// The slot that pairs order[2k + first] with its successor on the circle.
std::vector<Rank> matching(const std::vector<Rank>& order, std::size_t first) {
  const std::size_t n = order.size();
  std::vector<Rank> slot(n);
  for (std::size_t i = first; i < n + first; i += 2) {
    const Rank a = order[i % n];
    const Rank b = order[(i + 1) % n];
    slot[static_cast<std::size_t>(a)] = b;
    slot[static_cast<std::size_t>(b)] = a;
  }
  return slot;
}

// The slots that send one rank forward and one rank back on the circle.
std::vector<std::vector<Rank>> both_ways(const std::vector<Rank>& order) {
  const std::size_t n = order.size();
  std::vector<std::vector<Rank>> slots(2, std::vector<Rank>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t next = (i + 1) % n;
    slots[0][static_cast<std::size_t>(order[i])] = order[next];
    slots[1][static_cast<std::size_t>(order[next])] = order[i];
  }
  return slots;
}

bool share_an_edge(const std::vector<Rank>& slot, const std::vector<std::vector<Rank>>& others) {
  for (std::size_t i = 0; i < slot.size(); ++i) {
    for (const auto& other : others) {
      if (slot[i] == other[i]) return true;
    }
  }
  return false;
}

}  // namespace

NeighborLists complete_graph(std::int32_t ranks) {
  NeighborLists lists(static_cast<std::size_t>(ranks));
  for (Rank i = 0; i < ranks; ++i) {
    auto& list = lists[static_cast<std::size_t>(i)];
    list.reserve(static_cast<std::size_t>(ranks - 1));
    for (Rank j = 0; j < ranks; ++j) {
      if (j != i) list.push_back(j);
    }
  }
  return lists;
}

NeighborLists star_graph(std::int32_t ranks) {
  std::vector<Edge> edges;
  for (Rank leaf = 1; leaf < ranks; ++leaf) edges.emplace_back(0, leaf);
  return to_lists(ranks, edges);
}

NeighborLists grid_graph(std::int32_t ranks) {
  std::int32_t rows = 1;
  for (std::int32_t r = 1; r <= ranks / r; ++r) {
    if (ranks % r == 0) rows = r;
  }
  const std::int32_t columns = ranks / rows;
  std::vector<Edge> edges;
  for (Rank i = 0; i < ranks; ++i) {
    if ((i + 1) % columns != 0) edges.emplace_back(i, i + 1);
    if (i + columns < ranks) edges.emplace_back(i, i + columns);
  }
  return to_lists(ranks, edges);
}

NeighborLists random_regular_graph(std::int32_t ranks, std::int32_t degree, std::uint64_t seed) {
  GRAPEVINE_CHECK(
      degree < ranks && std::int64_t{ranks} * degree % 2 == 0 && (degree >= 2 || ranks <= 2),
      "no connected graph of degree ", degree, " on ", ranks, " ranks");
  Rng rng(mix_seed(seed, static_cast<std::uint64_t>(ranks)));
  std::vector<Edge> edges = circulant(ranks, degree, rng);
  // A relabelled circle is already uniform over the connected graphs of degree 2; switched ones
  // mostly fall apart into several circles.
  if (degree <= 2) return to_lists(ranks, edges);
  EdgeSet present(edges);
  NeighborLists lists;
  do {
    switch_edges(edges, present, rng);
    lists = to_lists(ranks, edges);
  } while (!connected(lists));
  return lists;
}

std::vector<std::vector<Rank>> random_regular_slots(std::int32_t ranks, std::uint64_t seed) {
  Rng rng(mix_seed(seed, static_cast<std::uint64_t>(ranks)));
  if (ranks == 1) return {};
  const std::vector<Rank> circle = random_order(ranks, rng);
  if (ranks == 2) return {matching(circle, 0)};
  if (ranks == 3) return both_ways(circle);
  if (ranks % 2 == 0) {
    std::vector<std::vector<Rank>> slots = {matching(circle, 0), matching(circle, 1)};
    std::vector<Rank> chords;
    do {
      chords = matching(random_order(ranks, rng), 0);
    } while (share_an_edge(chords, slots));
    slots.push_back(chords);
    return slots;
  }
  std::vector<std::vector<Rank>> slots = both_ways(circle);
  std::vector<std::vector<Rank>> second;
  do {
    second = both_ways(random_order(ranks, rng));
  } while (share_an_edge(second[0], slots));
  slots.insert(slots.end(), second.begin(), second.end());
  return slots;
}

}  // namespace grapevine
