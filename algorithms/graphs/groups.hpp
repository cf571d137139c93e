// Groups: the ranks that average with each other at each step. A part; pure functions.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

enum class Grouping { drawn, grid };

// All ranks, divided into new groups at each step.
//
// Where both numbers are powers of two: the butterfly of Li et al. 2021 (WAGMA-SGD), section 4: the
// groups of step t are the ranks that differ in log2 S bits alone, and the next step takes the next
// bits, so that the values of one rank reach all ranks in log_S P steps. Elsewhere: a permutation
// drawn from the seed and the step, cut into ceil(P / S) groups: at most S ranks in each, and sizes
// that differ by at most one.
//
// Grid (Moshpit: Ryabinin et al., NeurIPS 2021): ranks in a grid of edge S and ceil(log_S P) axes;
// the groups of step t are its lines along axis t mod axes. Where the grid is full, S^axes ranks,
// the averages of as many steps are the exact average of all.
class GroupSchedule {
 public:
  // `size`: of the largest group; 0: about sqrt(ranks), the paper's choice. Errors (bad_input): a
  // size beyond the ranks.
  static Expected<GroupSchedule> make(Grouping grouping, std::int32_t ranks, std::int32_t size,
                                      std::uint64_t seed);

  // The group of `rank` at `step` >= 0, ascending; all of its members get the same.
  std::vector<Rank> members(Step step, Rank rank) const;
  std::int32_t group_size() const { return size_; }

 private:
  GroupSchedule(Grouping grouping, std::int32_t ranks, std::int32_t size, std::uint64_t seed)
      : grouping_(grouping), ranks_(ranks), size_(size), seed_(seed) {}
  std::vector<Rank> butterfly(Step step, Rank rank) const;
  std::vector<Rank> shuffled(Step step, Rank rank) const;
  std::vector<Rank> line(Step step, Rank rank) const;

  Grouping grouping_;
  std::int32_t ranks_;
  std::int32_t size_;
  std::uint64_t seed_;
};

}  // namespace grapevine
