// BusyIntervals: the length of the union of intervals.
#pragma once
#include <map>

namespace grapevine {

// Intervals may come in any order and overlap. Those that can overlap no later one are forgotten,
// so that memory does not grow with time. Not thread-safe.
class BusyIntervals {
 public:
  // [begin, end]. Nothing is added where `end` is not above `begin`, or one of them is NaN.
  void add(double begin, double end);

  // REQUIRES: later intervals begin at `time` or after it; what they have before it is left out.
  void forget_before(double time);

  // Of the union of all intervals so far.
  double total() const { return total_; }

 private:
  std::map<double, double> ends_;  // by begin; disjoint
  double total_ = 0;
  double forgotten_ = 0;
  bool has_forgotten_ = false;
};

}  // namespace grapevine
