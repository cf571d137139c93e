// LinkFit: alpha and beta of the links of a run, from the times of its messages.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/random.hpp"
#include "net/sim/network_model.hpp"

namespace grapevine {

// Messages wait behind others in a NIC. The link shows in the messages that were alone, else in the
// fast ones: a line is fitted, by relative error, to the tenth percentile of the times of each
// size. The jitter is the mean distance of the median from it. Both use only messages that were
// alone where a size has a few of them.
//
// If nearly all messages have one size b, their time t gives only the sum alpha + b beta = t. The
// first of these that the trace has divides it: a few small messages (the fastest of them);
// messages that left one NIC one right after the other (their distance is b beta); else alpha is
// kUsualAlpha, at most t/2.
class LinkFit {
 public:
  static constexpr double kUsualAlpha = 25e-6;  // s: what --network has where nothing is measured

  // `alone`: none before it was on its way from the same NIC or to the same one.
  void add(std::uint64_t bytes, double seconds, bool alone = true);
  // A message that was sent right after another one of its size, by the same rank and while that
  // was on its way, has arrived so much later than it.
  void add_gap(std::uint64_t bytes, double seconds);

  enum class Split {
    sizes,    // the line
    small,    // the least time of a few small messages
    gaps,     // the median of the gaps is b beta
    assumed,  // alpha is kUsualAlpha, or half of t where that is less
  };
  struct Result {
    LinkModel link;
    double jitter = 0;
    std::int64_t messages = 0;
    int sizes = 0;  // that were compared
    Split split = Split::sizes;
    double seconds = 0;         // t, where messages had one size
    std::int64_t split_by = 0;  // messages that divided it

    // "messages had one size: …"; empty where they had several.
    std::string note() const;
  };
  // Zero where there are too few messages.
  Result fit() const;

 private:
  struct Times {
    std::vector<double> seconds;  // a sample
    std::int64_t count = 0;
  };
  struct Size {
    Times all, alone;
    double bytes = 0;  // sum
    double least = 0;  // s
  };
  struct Point {
    double bytes = 0, seconds = 0;
  };

  void keep(Times& times, double seconds);
  static LinkModel line_through(const std::vector<Point>& points);
  void split_one_size(const std::vector<Point>& points, Result& result) const;
  bool split_by_small(const Point& usual, Result& result) const;
  bool split_by_gaps(const Point& usual, Result& result) const;

  std::map<int, Size> sizes_;  // by logarithm
  std::vector<double> gaps_;   // s per byte, a sample
  std::int64_t gap_count_ = 0;
  Rng rng_{1};
};

}  // namespace grapevine
