// Averaging over wires that lose messages: roles that never wait, beside the shipped ones, which
// wait for every message of a round, unless they exchange running sums. In double precision.
//
// push-sum   x, w <- kept share; a message carries a share of (x, w). A lost message is lost mass.
// symmetric  x_i += sum_j W_ij (x_j - x_i) over the messages of the round that arrive. A loss keeps
//            consensus but moves the mean.
// bilateral  active ranks ask the passive neighbours of the round, one after the other; both ends
//            move to their mean. A reply carries the sum of all that the passive rank took: a lost
//            reply delays the move of the active end and destroys nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "algorithms/wiring/plan.hpp"
#include "messages/expected.hpp"
#include "messages/random.hpp"

namespace grapevine {

// The parts of `ranks` such roles over a graph; their models are float64. `method`: push-sum,
// symmetric or bilateral. Errors (bad_input): those of GossipGraph: for push-sum an edge without a
// path back, for bilateral a graph that is not bipartite.
Expected<std::shared_ptr<const SharedParts>> make_lossy_parts(const std::string& method,
                                                              const GraphSettings& graph,
                                                              std::int32_t ranks);

// Loses messages at random. The same seed loses the same messages. Not thread-safe.
class LossyWire {
 public:
  // `drop`: the probability that a message is lost, in [0, 1).
  LossyWire(double drop, std::uint64_t seed) : drop_(drop), rng_(mix_seed(seed, 0)) {}

  // Whether the next message arrives.
  bool carries();

 private:
  double drop_;
  Rng rng_;
};

}  // namespace grapevine
