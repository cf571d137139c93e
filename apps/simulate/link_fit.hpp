// LinkFit: alpha and beta of the links of a run, from the times of its messages.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "messages/random.hpp"
#include "net/sim/network_model.hpp"

namespace grapevine {

// Messages wait behind others in a NIC, so the fast ones tell of the link: the line is fitted, by
// relative error, to the tenth percentile of the times of each size. The jitter is the mean
// distance of the median from it.
class LinkFit {
 public:
  void add(std::uint64_t bytes, double seconds);

  struct Result {
    LinkModel link;
    double jitter = 0;
    std::int64_t messages = 0;
    int sizes = 0;  // that were compared; 1: alpha is not known, and taken as 0
  };
  // Zero where there are too few messages.
  Result fit() const;

 private:
  struct Size {
    std::vector<double> seconds;  // a sample
    double bytes = 0;             // sum
    std::int64_t count = 0;
  };
  std::map<int, Size> sizes_;  // by logarithm
  Rng rng_{1};
};

}  // namespace grapevine
