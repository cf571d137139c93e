// Vector clocks for threads in blocks: which accesses of other threads have happened before.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace racecheck {

// A time for each thread of a block: its accesses at earlier times are known.
using Times = std::vector<std::uint32_t>;

// By block. Immutable and shared: a barrier gives one to a thousand threads. Null: nothing is
// known.
using Clock = std::shared_ptr<const std::map<std::uint32_t, std::shared_ptr<const Times>>>;

inline bool knows(const Clock& clock, std::uint32_t block, std::uint32_t thread,
                  std::uint32_t time) {
  if (clock == nullptr) return false;
  const auto it = clock->find(block);
  return it != clock->end() && time < (*it->second)[thread];
}

inline std::shared_ptr<const Times> later(const std::shared_ptr<const Times>& a,
                                          const std::shared_ptr<const Times>& b) {
  auto both = std::make_shared<Times>(*a);
  for (std::size_t i = 0; i < both->size(); ++i) (*both)[i] = std::max((*both)[i], (*b)[i]);
  return both;
}

// What is known where both are.
inline Clock join(const Clock& a, const Clock& b) {
  if (b == nullptr || a == b) return a;
  if (a == nullptr) return b;
  auto both = std::make_shared<std::map<std::uint32_t, std::shared_ptr<const Times>>>(*a);
  for (const auto& [block, times] : *b) {
    auto& known = (*both)[block];
    if (known == nullptr)
      known = times;
    else if (known != times)
      known = later(known, times);
  }
  return both;
}

}  // namespace racecheck
