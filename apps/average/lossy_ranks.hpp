// Averaging over wires that lose messages: roles that never wait, beside the shipped ones, which
// wait for every message of a round. In double precision.
//
// push-sum   x, w <- kept share; a message carries a share of (x, w). With running sums
//            (Hadjicostis, Vaidya, Dominguez-Garcia 2016) it carries the sum of all shares over its
//            edge so far. The receiver adds the difference from the last sum that arrived: the next
//            message that arrives makes up for the lost ones.
// symmetric  x_i += sum_j W_ij (x_j - x_i) over the messages of the round that arrive. A loss keeps
//            consensus but moves the mean.
// bilateral  active ranks ask the passive neighbours of the round, one after the other; both ends
//            move to their mean. A reply carries the sum of all that the passive rank took: a lost
//            reply delays the move of the active end and destroys nothing.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "algorithms/wiring/plan.hpp"
#include "messages/envelope.hpp"
#include "messages/expected.hpp"
#include "messages/random.hpp"

namespace grapevine {

struct LossyAveraging {
  std::string method;        // push-sum | symmetric | bilateral
  bool running_sums = true;  // of push-sum; without them a lost message is lost mass
  double drop = 0;           // the probability that a message is lost, in [0, 1)
  std::uint64_t seed = 0;    // of the losses
};

// The parts of `ranks` such roles over a graph; their models are float64. Errors (bad_input): those
// of GossipGraph: for push-sum an edge without a path back, for bilateral a graph that is not
// bipartite.
Expected<std::shared_ptr<const SharedParts>> make_lossy_parts(const LossyAveraging& averaging,
                                                              const GraphSettings& graph,
                                                              std::int32_t ranks);

// Loses messages at random. The same seed loses the same messages. Not thread-safe.
class LossyWire {
 public:
  explicit LossyWire(const LossyAveraging& averaging);

  // Whether the message arrives.
  bool carry(const Envelope& message);
  // The push-sum weight that running sums still owe to receivers, over all edges.
  double owed_weight() const;

 private:
  struct Sums {
    double sent = 0;
    double arrived = 0;
  };

  double drop_;
  bool running_sums_;
  Rng rng_;
  std::map<std::pair<Rank, Rank>, Sums> edges_;  // by sender and receiver
};

}  // namespace grapevine
