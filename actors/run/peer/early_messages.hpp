// EarlyMessages: what a rank has received for its role of the view to come.
#pragma once
#include <vector>

#include "messages/envelope.hpp"

namespace grapevine {

// Not thread-safe.
class EarlyMessages {
 public:
  // Markers of cuts are kept, too. Of the running sums of one sender the newest alone: no rank
  // waits for one that receives its state, so that all of them together would have no bound. One
  // that is left out is as one that is lost: the next sum of the edge contains it, also where a
  // marker is between the two.
  void add(Envelope&& envelope);
  void drop_those_of(Rank from);
  void clear() { envelopes_.clear(); }
  // All of them, in the order in which they came. Leaves none.
  std::vector<Envelope> take();

 private:
  bool drop_older_sum(const Envelope& newer);

  std::vector<Envelope> envelopes_;
};

}  // namespace grapevine
