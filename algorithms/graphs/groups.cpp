#include "algorithms/graphs/groups.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "messages/random.hpp"

namespace grapevine {
namespace {

bool is_power_of_two(std::int32_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::int32_t log2_of(std::int32_t power) {
  std::int32_t bits = 0;
  while ((1 << bits) < power) ++bits;
  return bits;
}

// sqrt(ranks), rounded to a power of two where ranks is one.
std::int32_t usual_size(std::int32_t ranks) {
  if (is_power_of_two(ranks)) return 1 << ((log2_of(ranks) + 1) / 2);
  return static_cast<std::int32_t>(std::lround(std::sqrt(static_cast<double>(ranks))));
}

}  // namespace

Expected<GroupSchedule> GroupSchedule::make(Grouping grouping, std::int32_t ranks,
                                            std::int32_t size, std::uint64_t seed) {
  if (size > ranks)
    return bad_input("wiring.group_size = " + std::to_string(size) + " of " +
                     std::to_string(ranks) + " ranks: choose at most as many");
  return GroupSchedule(grouping, ranks, size > 0 ? size : usual_size(ranks), seed);
}

std::vector<Rank> GroupSchedule::members(Step step, Rank rank) const {
  if (grouping_ == Grouping::grid) return line(step, rank);
  return is_power_of_two(ranks_) && is_power_of_two(size_) ? butterfly(step, rank)
                                                           : shuffled(step, rank);
}

// The ranks whose numbers to base S differ in one digit alone.
std::vector<Rank> GroupSchedule::line(Step step, Rank rank) const {
  if (size_ == 1) return {rank};
  std::int64_t axes = 1;
  for (std::int64_t cells = size_; cells < ranks_; cells *= size_) ++axes;
  std::int64_t stride = 1;
  for (std::int64_t axis = 0; axis < step % axes; ++axis) stride *= size_;
  const std::int64_t first = rank - rank / stride % size_ * stride;
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < size_ && first + i * stride < ranks_; ++i)
    members.push_back(static_cast<Rank>(first + i * stride));
  return members;
}

// The bits first, first + 1, … of a rank, cyclically, are free within its group.
std::vector<Rank> GroupSchedule::butterfly(Step step, Rank rank) const {
  const std::int32_t all_bits = log2_of(ranks_), bits = log2_of(size_);
  std::vector<Rank> group = {rank};
  if (all_bits == 0) return group;
  for (std::int32_t i = 0; i < bits; ++i) {
    const Rank bit = 1 << ((step * bits + i) % all_bits);
    const std::size_t so_far = group.size();
    for (std::size_t j = 0; j < so_far; ++j) group.push_back(group[j] ^ bit);
  }
  std::sort(group.begin(), group.end());
  return group;
}

std::vector<Rank> GroupSchedule::shuffled(Step step, Rank rank) const {
  std::vector<Rank> order(static_cast<std::size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  Rng rng(mix_seed(seed_, static_cast<std::uint64_t>(step)));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng() % i]);
  const std::int64_t groups = (std::int64_t{ranks_} + size_ - 1) / size_;
  const auto at = std::find(order.begin(), order.end(), rank) - order.begin();
  // Group g holds the positions P g / G .. P (g + 1) / G - 1.
  const std::int64_t group = ((at + 1) * groups - 1) / ranks_;
  const auto begin = order.begin() + group * ranks_ / groups;
  const auto end = order.begin() + (group + 1) * ranks_ / groups;
  std::vector<Rank> members(begin, end);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace grapevine
