#include "algorithms/graphs/topology.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
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
                   std::vector<Lists> rounds)
    : Topology(std::move(name), ranks, peers, static_cast<std::int64_t>(rounds.size()), nullptr) {
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    std::call_once(rounds_[r].built, [&] { fill(rounds_[r], std::move(rounds[r])); });
  }
}

Topology::Topology(std::string name, std::int32_t ranks, std::int32_t peers, std::int64_t period,
                   std::function<Lists(std::int64_t)> destinations)
    : name_(std::move(name)),
      ranks_(ranks),
      peers_(peers),
      period_(period),
      destinations_(std::move(destinations)) {
  GRAPEVINE_CHECK(ranks >= 1 && peers >= 1 && period >= 1, name_, ": ", ranks, " ranks, ", peers,
                  " peers, ", period, " rounds");
  rounds_ = std::make_unique<Round[]>(static_cast<std::size_t>(period));
}

const std::vector<Rank>& Topology::out(std::int64_t round, Rank rank) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_, name_, ": rank ", rank, " of ", ranks_);
  return round_at(round).out[static_cast<std::size_t>(rank)];
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

std::vector<double> Topology::mixing_matrix(std::int64_t round) const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<double> w(n * n, 0.0);
  for (Rank j = 0; j < ranks_; ++j) {
    const auto column = static_cast<std::size_t>(j);
    const double weight = share(round, j);
    w[column * n + column] = weight;
    for (const Rank i : out(round, j)) w[static_cast<std::size_t>(i) * n + column] = weight;
  }
  return w;
}

double Topology::metropolis_hastings_weight(std::int64_t round, Rank i, Rank j) const {
  const std::vector<Rank> mine = neighbors(round, i);
  GRAPEVINE_CHECK(std::binary_search(mine.begin(), mine.end(), j), name_, ": ", i, " and ", j,
                  " are no neighbours in round ", round);
  return 1.0 / (1.0 + static_cast<double>(std::max(mine.size(), neighbors(round, j).size())));
}

std::vector<double> Topology::metropolis_hastings(std::int64_t round) const {
  const auto n = static_cast<std::size_t>(ranks_);
  Lists around(n);
  for (std::size_t i = 0; i < n; ++i) around[i] = neighbors(round, static_cast<Rank>(i));
  std::vector<double> w(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    double rest = 1;
    for (const Rank neighbor : around[i]) {
      const auto j = static_cast<std::size_t>(neighbor);
      w[i * n + j] =
          1.0 / (1.0 + static_cast<double>(std::max(around[i].size(), around[j].size())));
      rest -= w[i * n + j];
    }
    w[i * n + i] = rest;
  }
  return w;
}

bool Topology::doubly_stochastic() const {
  for (std::int64_t round = 0; round < period_; ++round) {
    for (Rank i = 0; i < ranks_; ++i) {
      double row = share(round, i);
      for (const Rank j : in(round, i)) row += share(round, j);
      if (std::abs(row - 1) > kExact) return false;
    }
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

const Topology::Round& Topology::round_at(std::int64_t round) const {
  GRAPEVINE_CHECK(round >= 0, name_, ": round ", round);
  const std::int64_t index = round % period_;
  Round& entry = rounds_[static_cast<std::size_t>(index)];
  std::call_once(entry.built, [&] { fill(entry, destinations_(index)); });
  return entry;
}

void Topology::fill(Round& round, Lists destinations) const {
  const auto n = static_cast<std::size_t>(ranks_);
  GRAPEVINE_CHECK(destinations.size() == n, name_, ": ", destinations.size(), " lists for ", n,
                  " ranks");
  Lists sources(n);
  std::vector<Rank> seen(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    for (const Rank to : destinations[i]) {
      GRAPEVINE_CHECK(to >= 0 && to < ranks_, name_, ": ", i, " sends to ", to);
    }
    drop_useless(destinations[i], static_cast<Rank>(i), seen);
    for (const Rank to : destinations[i]) {
      sources[static_cast<std::size_t>(to)].push_back(static_cast<Rank>(i));
    }
  }
  round.out = std::move(destinations);
  round.in = std::move(sources);
}

double Topology::share(std::int64_t round, Rank rank) const {
  return 1.0 / static_cast<double>(out(round, rank).size() + 1);
}

std::vector<double> Topology::period_product() const {
  const auto n = static_cast<std::size_t>(ranks_);
  std::vector<double> product(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) product[i * n + i] = 1;
  std::vector<double> next(n * n);
  for (std::int64_t round = 0; round < period_; ++round) {
    for (Rank i = 0; i < ranks_; ++i) {
      double* row = next.data() + static_cast<std::size_t>(i) * n;
      const auto add = [&](Rank j, double initial) {
        const double weight = share(round, j);
        const double* source = product.data() + static_cast<std::size_t>(j) * n;
        for (std::size_t c = 0; c < n; ++c) row[c] = initial * row[c] + weight * source[c];
      };
      add(i, 0);
      for (const Rank j : in(round, i)) add(j, 1);
    }
    product.swap(next);
  }
  return product;
}

}  // namespace grapevine
