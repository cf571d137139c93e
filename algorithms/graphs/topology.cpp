#include "algorithms/graphs/topology.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// Below this a deviation is rounding.
constexpr double kExact = 1e-12;

// Keeps the first occurrence of each destination but `self`. Lists are short (peers), or long and
// without duplicates (static graphs), so `seen` marks by owner instead of being cleared.
void drop_useless(std::vector<Rank>& list, Rank self, std::vector<Rank>& seen) {
  std::size_t kept = 0;
  for (const Rank to : list) {
    Rank& mark = seen[static_cast<std::size_t>(to)];
    if (to == self || mark == self) continue;
    mark = self;
    list[kept++] = to;
  }
  list.resize(kept);
}

// Whether both directions of every edge have the same weight.
bool is_symmetric(const Topology::Edges& edges) {
  for (std::size_t i = 0; i < edges.to.size(); ++i) {
    for (std::size_t k = 0; k < edges.to[i].size(); ++k) {
      const auto j = static_cast<std::size_t>(edges.to[i][k]);
      const std::vector<Rank>& back = edges.to[j];
      const auto own = std::lower_bound(back.begin(), back.end(), static_cast<Rank>(i));
      if (own == back.end() || *own != static_cast<Rank>(i)) return false;
      if (edges.weights[j][static_cast<std::size_t>(own - back.begin())] != edges.weights[i][k])
        return false;
    }
  }
  return true;
}

// What Edges asks for.
bool is_well_weighted(const std::vector<Rank>& to, Rank self, const std::vector<double>& weights) {
  const auto repeated = std::adjacent_find(to.begin(), to.end(), std::greater_equal<Rank>());
  return weights.size() == to.size() && repeated == to.end() &&
         !std::binary_search(to.begin(), to.end(), self) &&
         std::all_of(weights.begin(), weights.end(), [](double weight) { return weight > 0; }) &&
         std::accumulate(weights.begin(), weights.end(), 0.0) < 1;
}

// Largest |eigenvalue| by Gelfand's formula, lim |M^k|^(1/k), with k = 2^s by repeated squaring.
// Unlike an eigenvalue solver it does not inflate nilpotent parts: a vanishing power is seen as 0.
double spectral_radius(at::Tensor m) {
  constexpr int kSquarings = 26;  // leaves a relative error of log(n) / 2^26
  double norm = m.norm().item<double>();
  if (norm < kExact) return 0;
  double log_radius = std::log(norm);
  for (int s = 1; s <= kSquarings; ++s) {
    m = m / norm;
    m = at::mm(m, m);
    norm = m.norm().item<double>();
    if (norm < kExact) return 0;
    log_radius += std::ldexp(std::log(norm), -s);
  }
  return std::exp(log_radius);
}

}  // namespace

Topology::Topology(std::string name, std::int32_t ranks, std::int32_t peers,
                   std::vector<Edges> rounds)
    : Topology(std::move(name), ranks, peers, static_cast<std::int64_t>(rounds.size()), nullptr) {
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    std::call_once(rounds_[r].built, [&] { fill(rounds_[r], std::move(rounds[r])); });
  }
}

Topology::Topology(std::string name, std::int32_t ranks, std::int32_t peers, std::int64_t period,
                   std::function<Edges(std::int64_t)> edges)
    : name_(std::move(name)),
      ranks_(ranks),
      peers_(peers),
      period_(period),
      edges_(std::move(edges)) {
  GRAPEVINE_CHECK(ranks >= 1 && peers >= 1 && period >= 1, name_, ": ", ranks, " ranks, ", peers,
                  " peers, ", period, " rounds");
  rounds_ = std::make_unique<Round[]>(static_cast<std::size_t>(period));
}

const std::vector<Rank>& Topology::out(std::int64_t round, Rank rank) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_, name_, ": rank ", rank, " of ", ranks_);
  return round_at(round).edges.to[static_cast<std::size_t>(rank)];
}

const std::vector<Rank>& Topology::in(std::int64_t round, Rank rank) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_, name_, ": rank ", rank, " of ", ranks_);
  return round_at(round).in[static_cast<std::size_t>(rank)];
}

std::vector<Rank> Topology::neighbors(std::int64_t round, Rank rank) const {
  std::vector<Rank> destinations = out(round, rank);
  std::sort(destinations.begin(), destinations.end());
  const std::vector<Rank>& sources = in(round, rank);
  std::vector<Rank> both;
  std::set_union(destinations.begin(), destinations.end(), sources.begin(), sources.end(),
                 std::back_inserter(both));
  return both;
}

bool Topology::has_weights(std::int64_t round) const {
  return !round_at(round).edges.weights.empty();
}

Shares Topology::own_shares(std::int64_t round, Rank rank) const {
  GRAPEVINE_CHECK(has_weights(round), name_, " has no weights of its own");
  const std::vector<Rank>& to = out(round, rank);
  const auto& weights = round_at(round).edges.weights[static_cast<std::size_t>(rank)];
  Shares shares;
  for (std::size_t k = 0; k < to.size(); ++k) shares.give(to[k], weights[k]);
  return shares;
}

const Shares& Topology::symmetric_shares(std::int64_t round, Rank rank) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_, name_, ": rank ", rank, " of ", ranks_);
  Round& entry = round_at(round);
  std::call_once(entry.weighed, [&] { entry.symmetric = weigh(round); });
  return entry.symmetric[static_cast<std::size_t>(rank)];
}

std::vector<Shares> Topology::weigh(std::int64_t round) const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<Shares> shares(n);
  if (has_weights(round) && is_symmetric(round_at(round).edges)) {
    for (std::size_t i = 0; i < n; ++i) shares[i] = own_shares(round, static_cast<Rank>(i));
    return shares;
  }
  Lists near(n);
  for (std::size_t i = 0; i < n; ++i) near[i] = neighbors(round, static_cast<Rank>(i));
  for (std::size_t i = 0; i < n; ++i) {
    shares[i].links.reserve(near[i].size());
    for (const Rank peer : near[i]) {
      const std::size_t degree =
          std::max(near[i].size(), near[static_cast<std::size_t>(peer)].size());
      shares[i].give(peer, 1.0 / (1.0 + static_cast<double>(degree)));
    }
  }
  return shares;
}

template <class F>
void Topology::for_each_entry(std::int64_t round, const F& entry) const {
  const Edges& edges = round_at(round).edges;
  for (std::size_t j = 0; j < edges.to.size(); ++j) {
    const double even = 1.0 / static_cast<double>(edges.to[j].size() + 1);
    double kept = edges.weights.empty() ? even : 1;
    for (std::size_t k = 0; k < edges.to[j].size(); ++k) {
      const double weight = edges.weights.empty() ? even : edges.weights[j][k];
      if (!edges.weights.empty()) kept -= weight;
      entry(static_cast<std::size_t>(edges.to[j][k]), j, weight);
    }
    entry(j, j, kept);
  }
}

std::vector<double> Topology::mixing_matrix(std::int64_t round) const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<double> w(n * n, 0.0);
  for_each_entry(round,
                 [&](std::size_t i, std::size_t j, double weight) { w[i * n + j] = weight; });
  return w;
}

bool Topology::doubly_stochastic() const {
  for (std::int64_t round = 0; round < period_; ++round) {
    std::vector<double> row(static_cast<std::size_t>(ranks_), 0.0);
    for_each_entry(round, [&](std::size_t i, std::size_t, double weight) { row[i] += weight; });
    for (const double sum : row)
      if (std::abs(sum - 1) > kExact) return false;
  }
  return true;
}

bool Topology::symmetric() const {
  for (std::int64_t round = 0; round < period_; ++round) {
    for (Rank i = 0; i < ranks_; ++i) {
      std::vector<Rank> destinations = out(round, i);
      std::sort(destinations.begin(), destinations.end());
      if (destinations != in(round, i)) return false;
    }
  }
  return true;
}

double Topology::contraction() const {
  if (ranks_ == 1) return 0;
  std::vector<double> product = period_product();
  const at::Tensor p = at::from_blob(product.data(), {ranks_, ranks_}, at::kDouble);
  // P keeps the zero-sum vectors among themselves, and all eigenvalues but the leading 1 live
  // there: P (I - 11^T/n) has exactly those. It vanishes where every rank ends with the same
  // mixture.
  return spectral_radius(p - p.mean(1, true));
}

Topology::Round& Topology::round_at(std::int64_t round) const {
  GRAPEVINE_CHECK(round >= 0, name_, ": round ", round);
  const std::int64_t index = round % period_;
  Round& entry = rounds_[static_cast<std::size_t>(index)];
  std::call_once(entry.built, [&] { fill(entry, edges_(index)); });
  return entry;
}

void Topology::fill(Round& round, Edges edges) const {
  const auto n = static_cast<std::size_t>(ranks_);
  const bool weighted = !edges.weights.empty();
  GRAPEVINE_CHECK(edges.to.size() == n && (!weighted || edges.weights.size() == n), name_, ": ",
                  edges.to.size(), " lists for ", n, " ranks");
  Lists sources(n);
  std::vector<Rank> seen(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    const auto self = static_cast<Rank>(i);
    for (const Rank to : edges.to[i]) {
      GRAPEVINE_CHECK(to >= 0 && to < ranks_, name_, ": ", i, " sends to ", to);
    }
    GRAPEVINE_CHECK(!weighted || is_well_weighted(edges.to[i], self, edges.weights[i]), name_,
                    ": the weights of rank ", i);
    drop_useless(edges.to[i], self, seen);
    for (const Rank to : edges.to[i]) sources[static_cast<std::size_t>(to)].push_back(self);
  }
  round.edges = std::move(edges);
  round.in = std::move(sources);
}

std::vector<double> Topology::period_product() const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<double> product = mixing_matrix(0);
  std::vector<double> next(n * n);
  for (std::int64_t round = 1; round < period_; ++round) {
    std::fill(next.begin(), next.end(), 0.0);
    for_each_entry(round, [&](std::size_t i, std::size_t j, double weight) {
      double* row = next.data() + i * n;
      const double* source = product.data() + j * n;
      for (std::size_t c = 0; c < n; ++c) row[c] += weight * source[c];
    });
    product.swap(next);
  }
  return product;
}

}  // namespace grapevine
