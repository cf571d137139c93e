#include "algorithms/graphs/base_graph.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

using Ranks = std::vector<Rank>;
using Round = std::vector<WeightedEdge>;

// Every pair of `members`, with equal weights.
void join(const Ranks& members, Round& round) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = i + 1; j < members.size(); ++j)
      round.push_back({members[i], members[j], 1.0 / static_cast<double>(members.size())});
  }
}

// The cube over some ranks.
class Cube {
 public:
  // REQUIRES: the prime factors of `size` are at most `most`.
  Cube(std::size_t size, std::size_t most) : size_(size) {
    for (std::size_t factor = std::min(most, size); factor >= 2; --factor) {
      for (; size % factor == 0; size /= factor) factors_.push_back(factor);
    }
    GRAPEVINE_CHECK(size == 1, "no cube of ", size_, " ranks has at most ", most, " in a group");
    std::reverse(factors_.begin(), factors_.end());
  }

  std::size_t rounds() const { return factors_.size(); }

  // Its round `index` over `ranks`. REQUIRES: index < rounds().
  void add(const Ranks& ranks, std::size_t index, Round& round) const {
    GRAPEVINE_CHECK(ranks.size() == size_ && index < rounds(), "round ", index, " of a cube");
    std::size_t stride = 1;
    for (std::size_t q = 0; q < index; ++q) stride *= factors_[q];
    for (std::size_t first = 0; first < size_; ++first) {
      if (first / stride % factors_[index] != 0) continue;
      Ranks group;
      for (std::size_t j = 0; j < factors_[index]; ++j) group.push_back(ranks[first + j * stride]);
      join(group, round);
    }
  }

 private:
  std::size_t size_;
  std::vector<std::size_t> factors_;  // ascending
};

// V_l: consecutive ranks, in pieces of equal size.
struct Block {
  Block(const Ranks& all, std::size_t first, std::size_t count, std::size_t piece, std::size_t base)
      : ranks(all.begin() + static_cast<std::ptrdiff_t>(first),
              all.begin() + static_cast<std::ptrdiff_t>(first + count * piece)),
        cube(count * piece, base),
        piece_cube(piece, base) {
    for (auto begin = ranks.begin(); begin != ranks.end();) {
      const auto end = begin + static_cast<std::ptrdiff_t>(piece);
      pieces.emplace_back(begin, end);
      begin = end;
    }
  }

  Ranks ranks;
  std::vector<Ranks> pieces;
  Cube cube;
  Cube piece_cube;
};

// The digits of the number of ranks, the highest first.
std::vector<Block> blocks_of(const Ranks& ranks, std::size_t base) {
  std::size_t power = 1;
  while (power <= ranks.size() / base) power *= base;
  std::vector<Block> blocks;
  for (std::size_t first = 0; power > 0; power /= base) {
    const std::size_t digit = (ranks.size() - first) / power;
    if (digit == 0) continue;
    blocks.emplace_back(ranks, first, digit, power, base);
    first += digit * power;
  }
  return blocks;
}

// Each rank after blocks[m] takes one rank of each piece of it; the ranks that none takes average
// in groups.
void attach(const std::vector<Block>& blocks, std::size_t m, std::size_t base, Round& round) {
  const std::vector<Ranks>& pieces = blocks[m].pieces;
  std::size_t following = 0;
  for (std::size_t l = m; l < blocks.size(); ++l) following += blocks[l].ranks.size();
  const double weight =
      static_cast<double>(blocks[m].ranks.size()) / static_cast<double>(following * pieces.size());
  std::size_t free = pieces.front().size();  // the ranks of a piece before it are not taken
  for (std::size_t l = m + 1; l < blocks.size(); ++l) {
    for (const Rank rank : blocks[l].ranks) {
      --free;
      for (const Ranks& piece : pieces) round.push_back({piece[free], rank, weight});
    }
  }
  Ranks group;
  for (const Ranks& piece : pieces) {
    for (std::size_t i = 0; i < free; ++i) {
      group.push_back(piece[i]);
      if (group.size() == base) join(std::exchange(group, {}), round);
    }
  }
  join(group, round);
}

// What blocks[l] does in the round `since` its first one after the cubes.
void add_after_cubes(const std::vector<Block>& blocks, std::size_t l, std::size_t since,
                     std::size_t base, Round& round) {
  const bool is_last = l + 1 == blocks.size();
  if (since < l) return;  // another block attaches this one
  if (since == l && !is_last) return attach(blocks, l, base, round);
  const std::size_t index = since - l - (is_last ? 0 : 1);
  const Block& block = blocks[l];
  if (index >= block.piece_cube.rounds()) return;
  for (const Ranks& piece : block.pieces) block.piece_cube.add(piece, index, round);
}

std::vector<Round> simple_base_graph(const Ranks& ranks, std::size_t base) {
  const std::vector<Block> blocks = blocks_of(ranks, base);
  const std::size_t cubes = blocks.front().cube.rounds();
  const std::size_t after = blocks.size() > 1 ? 1 + blocks.front().piece_cube.rounds() : 0;
  std::vector<Round> rounds(cubes + after);
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    for (std::size_t l = 0; l < blocks.size(); ++l) {
      const Block& block = blocks[l];
      if (r >= cubes)
        add_after_cubes(blocks, l, r - cubes, base, rounds[r]);
      else if (block.cube.rounds() > 0)
        block.cube.add(block.ranks, r % block.cube.rounds(), rounds[r]);
    }
  }
  return rounds;
}

Ranks ranks_from(std::size_t first, std::size_t count, std::size_t stride) {
  Ranks ranks;
  for (std::size_t i = 0; i < count; ++i) ranks.push_back(static_cast<Rank>(first + i * stride));
  return ranks;
}

// The largest divisor of `n` without prime factors above `most`.
std::size_t smooth_part(std::size_t n, std::size_t most) {
  std::size_t rest = n;
  for (std::size_t factor = 2; factor <= std::min(most, rest); ++factor) {
    while (rest % factor == 0) rest /= factor;
  }
  return n / rest;
}

std::vector<Round> grouped_base_graph(std::size_t n, std::size_t base) {
  const std::size_t groups = smooth_part(n, base), size = n / groups;
  std::vector<Round> rounds;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::vector<Round> own = simple_base_graph(ranks_from(g * size, size, 1), base);
    rounds.resize(own.size());
    for (std::size_t r = 0; r < own.size(); ++r)
      rounds[r].insert(rounds[r].end(), own[r].begin(), own[r].end());
  }
  const Cube across(groups, base);
  for (std::size_t q = 0; q < across.rounds(); ++q) {
    rounds.emplace_back();
    for (std::size_t i = 0; i < size; ++i)
      across.add(ranks_from(i, groups, size), q, rounds.back());
  }
  return rounds;
}

}  // namespace

std::vector<std::vector<WeightedEdge>> base_graph(std::int32_t ranks, std::int32_t peers) {
  GRAPEVINE_CHECK(ranks >= 1 && peers >= 1, ranks, " ranks, ", peers, " peers");
  const auto n = static_cast<std::size_t>(ranks);
  if (n == 1) return {Round{}};
  const std::size_t base = std::min(static_cast<std::size_t>(peers), n - 1) + 1;
  std::vector<Round> simple = simple_base_graph(ranks_from(0, n, 1), base);
  std::vector<Round> grouped = grouped_base_graph(n, base);
  return simple.size() < grouped.size() ? std::move(simple) : std::move(grouped);
}

Topology::Edges both_directions(std::int32_t ranks, const std::vector<WeightedEdge>& edges) {
  std::vector<std::vector<std::pair<Rank, double>>> outgoing(static_cast<std::size_t>(ranks));
  for (const WeightedEdge& edge : edges) {
    outgoing[static_cast<std::size_t>(edge.a)].emplace_back(edge.b, edge.weight);
    outgoing[static_cast<std::size_t>(edge.b)].emplace_back(edge.a, edge.weight);
  }
  Topology::Edges both(Topology::Lists(outgoing.size()),
                       std::vector<std::vector<double>>(outgoing.size()));
  for (std::size_t i = 0; i < outgoing.size(); ++i) {
    std::sort(outgoing[i].begin(), outgoing[i].end());
    for (const auto& [to, weight] : outgoing[i]) {
      both.to[i].push_back(to);
      both.weights[i].push_back(weight);
    }
  }
  return both;
}

}  // namespace grapevine
