#include "gpu/timing/busy_intervals.hpp"

#include <algorithm>
#include <iterator>

namespace grapevine {

void BusyIntervals::add(double begin, double end) {
  if (has_forgotten_) begin = std::max(begin, forgotten_);
  if (!(end > begin)) return;
  auto each = ends_.upper_bound(begin);
  if (each != ends_.begin() && std::prev(each)->second >= begin) --each;
  while (each != ends_.end() && each->first <= end) {
    total_ -= each->second - each->first;
    begin = std::min(begin, each->first);
    end = std::max(end, each->second);
    each = ends_.erase(each);
  }
  ends_.emplace(begin, end);
  total_ += end - begin;
}

void BusyIntervals::forget_before(double time) {
  forgotten_ = has_forgotten_ ? std::max(forgotten_, time) : time;
  has_forgotten_ = true;
  while (!ends_.empty() && ends_.begin()->second < forgotten_) ends_.erase(ends_.begin());
}

}  // namespace grapevine
