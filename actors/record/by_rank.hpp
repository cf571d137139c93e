// ByRank: a value for each of a few ranks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// A rank has messages of few of thousands: a sorted list in one piece of memory, and the entry that
// was found last, as a rank of a ring always sends to the same one. Not thread-safe.
template <class Value>
class ByRank {
 public:
  // Value() where there is none yet. The reference holds until the next call.
  Value& operator[](Rank rank) {
    if (last_ < entries_.size() && entries_[last_].first == rank) return entries_[last_].second;
    auto found = std::lower_bound(entries_.begin(), entries_.end(), rank,
                                  [](const Entry& entry, Rank r) { return entry.first < r; });
    if (found == entries_.end() || found->first != rank)
      found = entries_.insert(found, {rank, Value()});
    last_ = static_cast<std::size_t>(found - entries_.begin());
    return found->second;
  }

  // In the order of ranks.
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  using Entry = std::pair<Rank, Value>;
  std::vector<Entry> entries_;
  std::size_t last_ = 0;
};

}  // namespace grapevine
