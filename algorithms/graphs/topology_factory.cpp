#include <algorithm>
#include <numeric>
#include <utility>

#include "algorithms/graphs/base_graph.hpp"
#include "algorithms/graphs/edge_list.hpp"
#include "algorithms/graphs/topology.hpp"
#include "algorithms/graphs/topology_graphs.hpp"
#include "algorithms/graphs/topology_type.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using TopologyPtr = std::shared_ptr<const Topology>;

// The limit for graphs that list all their edges at once: more would exhaust memory.
constexpr std::int64_t kMaxListedEdges = std::int64_t{1} << 28;
constexpr std::int32_t kMaxRanks = 1 << 20;

// The destinations of a rank, one for each slot.
struct Slots {
  std::int64_t count = 0;
  std::function<Rank(std::int64_t slot, Rank rank)> destination;
};

struct Request {
  std::string name;  // as typed
  std::int32_t ranks;
  std::int32_t peers;
  std::string argument;  // the text after the colon
};

std::string describe(const Request& request) {
  return "topology '" + request.name + "' with " + std::to_string(request.ranks) + " ranks";
}

Rank shifted(Rank rank, std::int64_t offset, std::int32_t ranks) {
  const std::int64_t sum = (rank + offset) % ranks;
  return static_cast<Rank>(sum < 0 ? sum + ranks : sum);
}

// The same offsets for every rank.
Slots circulant_slots(std::vector<std::int64_t> offsets, std::int32_t ranks) {
  const auto count = static_cast<std::int64_t>(offsets.size());
  return {count, [offsets = std::move(offsets), ranks](std::int64_t slot, Rank rank) {
            return shifted(rank, offsets[static_cast<std::size_t>(slot)], ranks);
          }};
}

// Ranks on a circle of even length; where their number is odd, one place on it is empty.
std::int32_t even_circle(std::int32_t ranks) { return ranks > 1 ? ranks + ranks % 2 : ranks; }

// Odd ranks go by the offset where even ones go against it. All offsets are odd, so the two ends of
// an edge differ in parity and each slot is a swap. A rank that meets the empty place rests.
Slots bipartite_slots(std::vector<std::int64_t> offsets, std::int32_t ranks) {
  const auto count = static_cast<std::int64_t>(offsets.size());
  return {count, [offsets = std::move(offsets), ranks](std::int64_t slot, Rank rank) {
            const std::int64_t offset = offsets[static_cast<std::size_t>(slot)];
            const Rank to = shifted(rank, rank % 2 != 0 ? offset : -offset, even_circle(ranks));
            return to < ranks ? to : rank;
          }};
}

Error too_many_edges(const Request& request) {
  return bad_input(describe(request) + " and " + std::to_string(request.peers) +
                   " peers: too many edges: use fewer ranks or peers");
}

Expected<TopologyPtr> rotating(const Request& request, Slots slots) {
  const std::int64_t used = std::min<std::int64_t>(request.peers, slots.count);
  if (used * request.ranks > kMaxListedEdges) return too_many_edges(request);
  const std::int64_t period = used == 0 ? 1 : slots.count / std::gcd(slots.count, used);
  const std::int32_t ranks = request.ranks;
  auto destinations = [slots = std::move(slots), used, ranks](std::int64_t round) {
    Topology::Lists lists(static_cast<std::size_t>(ranks));
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto& list = lists[static_cast<std::size_t>(rank)];
      list.reserve(static_cast<std::size_t>(used));
      for (std::int64_t k = 0; k < used; ++k) {
        list.push_back(slots.destination((round * used + k) % slots.count, rank));
      }
    }
    return lists;
  };
  return TopologyPtr(
      std::make_shared<const Topology>(request.name, ranks, request.peers, period, destinations));
}

TopologyPtr fixed(const Request& request, Topology::Edges edges) {
  std::vector<Topology::Edges> rounds;
  rounds.push_back(std::move(edges));
  return std::make_shared<const Topology>(request.name, request.ranks, request.peers,
                                          std::move(rounds));
}

std::vector<std::int64_t> both_signs(const std::vector<std::int64_t>& distances) {
  std::vector<std::int64_t> offsets;
  for (const std::int64_t distance : distances) {
    offsets.push_back(distance);
    offsets.push_back(-distance);
  }
  return offsets;
}

std::vector<std::int64_t> powers_of_two(std::int32_t ranks) {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = 1; power < ranks; power *= 2) powers.push_back(power);
  return powers;
}

std::vector<std::int64_t> odd_distances(std::int32_t ranks) {
  std::vector<std::int64_t> distances;
  for (std::int64_t distance = 1; distance < ranks; distance += 2) distances.push_back(distance);
  return distances;
}

Expected<TopologyPtr> make_exponential(const Request& request) {
  std::vector<std::int64_t> offsets;
  const std::int64_t base = std::int64_t{request.peers} + 1;
  for (std::int64_t power = 1; power < request.ranks; power *= base) {
    // Beyond `ranks` multiples only repeat destinations.
    const std::int64_t multiples = std::min(request.peers, request.ranks);
    for (std::int64_t j = 1; j <= multiples; ++j) offsets.push_back(j * power);
  }
  return rotating(request, circulant_slots(std::move(offsets), request.ranks));
}

// With one peer the powers of two, one in each round.
Expected<TopologyPtr> make_one_peer_exponential(const Request& request) {
  Request one = request;
  one.peers = 1;
  return rotating(one, circulant_slots(powers_of_two(request.ranks), request.ranks));
}

// The circle method: in slot s ranks i and j meet where i + j = s modulo the odd one of n and n -
// 1; the rank with 2 i = s meets the last one, or, where n is odd, nobody.
Expected<TopologyPtr> make_round_robin(const Request& request) {
  Request one = request;
  one.peers = 1;
  const Rank ranks = request.ranks, odd = ranks - 1 + ranks % 2, last = ranks - 1;
  Slots slots;
  slots.count = ranks > 1 ? odd : 0;
  slots.destination = [ranks, odd, last](std::int64_t slot, Rank rank) {
    const bool even = ranks % 2 == 0;
    if (even && rank == last) return static_cast<Rank>(slot * (odd / 2 + 1) % odd);
    const auto other = static_cast<Rank>((slot - rank + odd) % odd);
    return other == rank && even ? last : other;
  };
  return rotating(one, std::move(slots));
}

Expected<TopologyPtr> make_bidirectional_exponential(const Request& request) {
  return rotating(request,
                  circulant_slots(both_signs(powers_of_two(request.ranks)), request.ranks));
}

Expected<TopologyPtr> make_bipartite_exponential(const Request& request) {
  std::vector<std::int64_t> distances = powers_of_two(even_circle(request.ranks));
  for (std::size_t i = 1; i < distances.size(); ++i) distances[i] += 1;
  return rotating(request, bipartite_slots(both_signs(distances), request.ranks));
}

Expected<TopologyPtr> make_linear(const Request& request) {
  return rotating(request,
                  circulant_slots(both_signs(odd_distances(request.ranks)), request.ranks));
}

Expected<TopologyPtr> make_base(const Request& request) {
  if (std::int64_t{request.ranks} * std::min(request.peers, request.ranks - 1) > kMaxListedEdges)
    return too_many_edges(request);
  auto rounds = base_graph(request.ranks, request.peers);
  const auto period = static_cast<std::int64_t>(rounds.size());
  auto edges = [rounds = std::move(rounds), ranks = request.ranks](std::int64_t round) {
    return both_directions(ranks, rounds[static_cast<std::size_t>(round)]);
  };
  return TopologyPtr(std::make_shared<const Topology>(request.name, request.ranks, request.peers,
                                                      period, std::move(edges)));
}

Expected<TopologyPtr> make_bipartite_linear(const Request& request) {
  const std::vector<std::int64_t> distances = odd_distances(even_circle(request.ranks));
  return rotating(request, bipartite_slots(both_signs(distances), request.ranks));
}

Expected<TopologyPtr> make_ring(const Request& request) {
  std::vector<std::int64_t> offsets = {1, -1};
  offsets.resize(static_cast<std::size_t>(std::min(request.peers, 2)));
  return rotating(request, circulant_slots(std::move(offsets), request.ranks));
}

Expected<TopologyPtr> make_hypercube(const Request& request) {
  const std::vector<std::int64_t> bits = powers_of_two(request.ranks);
  const std::int64_t above = std::int64_t{1} << bits.size();
  if (above != request.ranks) {
    return bad_input(describe(request) + ": a hypercube needs a power of two: use " +
                     std::to_string(above / 2) + " or " + std::to_string(above) +
                     " ranks, or star or grid2d, which take any number");
  }
  const auto flip = [](std::int64_t slot, Rank rank) {
    return static_cast<Rank>(rank ^ (std::int64_t{1} << slot));
  };
  return rotating(request, {static_cast<std::int64_t>(bits.size()), flip});
}

Expected<TopologyPtr> make_complete(const Request& request) {
  if (std::int64_t{request.ranks} * (request.ranks - 1) > kMaxListedEdges) {
    return too_many_edges(request);
  }
  return fixed(request, complete_graph(request.ranks));
}

Expected<TopologyPtr> make_star(const Request& request) {
  return fixed(request, star_graph(request.ranks));
}

Expected<TopologyPtr> make_grid(const Request& request) {
  return fixed(request, grid_graph(request.ranks));
}

Expected<std::uint64_t> parse_seed(const Request& request) {
  if (request.name.find(':') == std::string::npos) return std::uint64_t{0};
  const std::string& text = request.argument;
  const bool digits = !text.empty() && text.size() <= 19 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) {
    return bad_input("topology '" + request.name + "': the seed '" + text +
                     "' is not a whole number of at most 19 digits: write random-regular:SEED");
  }
  return std::uint64_t{std::stoull(text)};
}

Expected<TopologyPtr> make_random_regular(const Request& request) {
  const Expected<std::uint64_t> seed = parse_seed(request);
  if (!seed) return seed.error();
  if (request.ranks == 1) return fixed(request, Topology::Lists(1));
  if (request.peers == 1) {
    auto tables = random_regular_slots(request.ranks, *seed);
    const auto count = static_cast<std::int64_t>(tables.size());
    return rotating(
        request, {count, [tables = std::move(tables)](std::int64_t slot, Rank rank) {
                    return tables[static_cast<std::size_t>(slot)][static_cast<std::size_t>(rank)];
                  }});
  }
  const std::int32_t degree = std::min(request.peers, request.ranks - 1);
  if (std::int64_t{request.ranks} * degree > kMaxListedEdges) {
    return too_many_edges(request);
  }
  if (request.ranks % 2 != 0 && degree % 2 != 0) {
    return bad_input(describe(request) + " and " + std::to_string(request.peers) +
                     " peers: ranks times peers must be even: use " + std::to_string(degree - 1) +
                     " or " + std::to_string(degree + 1) + " peers");
  }
  return fixed(request, random_regular_graph(request.ranks, degree, *seed));
}

Expected<TopologyPtr> make_from_file(const Request& request) {
  Expected<Topology::Edges> edges = read_edge_list(request.argument, request.ranks);
  if (!edges) return edges.error();
  return fixed(request, std::move(*edges));
}

struct Entry {
  const char* name;
  Expected<TopologyPtr> (*make)(const Request&);
};

constexpr Entry kEntries[] = {
    {"exponential", make_exponential},
    {"one-peer-exponential", make_one_peer_exponential},
    {"bidirectional-exponential", make_bidirectional_exponential},
    {"bipartite-exponential", make_bipartite_exponential},
    {"linear", make_linear},
    {"bipartite-linear", make_bipartite_linear},
    {"round-robin", make_round_robin},
    {"ring", make_ring},
    {"complete", make_complete},
    {"star", make_star},
    {"hypercube", make_hypercube},
    {"random-regular", make_random_regular},
    {"grid2d", make_grid},
    {"base", make_base},
};

}  // namespace

std::vector<std::string> topology_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  for (const TopologyType& type : registered_topologies()) names.push_back(type.name);
  return names;
}

Expected<void> check_topology_name(const std::string& name) {
  const std::size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  if (kind == "file" && colon != std::string::npos) return {};
  for (const Entry& entry : kEntries)
    if ((kind == "random-regular" ? kind : name) == entry.name) return {};
  if (registered_topology(name) != nullptr) return {};
  std::vector<std::string> valid = topology_names();
  valid.emplace_back("file:PATH");
  return unknown_name("topology", name, valid);
}

Expected<TopologyPtr> make_topology(const std::string& name, std::int32_t ranks,
                                    std::int32_t peers) {
  const std::size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const Request request{name, ranks, peers,
                        colon == std::string::npos ? "" : name.substr(colon + 1)};
  if (ranks < 1 || ranks > kMaxRanks) {
    return bad_input("topology '" + name + "': " + std::to_string(ranks) + " ranks: use 1.." +
                     std::to_string(kMaxRanks));
  }
  if (peers < 1) {
    return bad_input("topology '" + name + "': " + std::to_string(peers) + " peers: use 1 or more");
  }
  if (kind == "file" && colon != std::string::npos) return make_from_file(request);
  for (const Entry& entry : kEntries) {
    const bool takes_argument = kind == "random-regular";
    if ((takes_argument ? kind : name) == entry.name) return entry.make(request);
  }
  if (const TopologyType* type = registered_topology(name)) return type->make(ranks, peers);
  return check_topology_name(name).error();
}

}  // namespace grapevine
