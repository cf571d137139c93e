// Averaging: ranks that hold one value each agree on the mean by gossip, without a model. One
// sans-IO state machine per rank, and a seeded driver that runs them round by round.
//
// push-sum   Kempe, Dobra, Gehrke 2003: a rank splits (x, w) evenly between itself and its
//            destinations; x/w converges to the mean on any strongly connected graph.
//            With running sums (Hadjicostis, Vaidya, Dominguez-Garcia 2016) a message carries the
//            sum of all shares over its edge so far. The receiver adds its difference from the
//            last received sum: the next message that arrives makes up for the lost ones.
// symmetric  Xiao, Boyd 2004: x_i += sum_j W_ij (x_j - x_i) with Metropolis-Hastings weights over
//            the round's edges, used both ways. A loss keeps consensus but moves the mean.
// bilateral  pairwise averaging (Boyd et al. 2006; Lian et al. 2018): both ends of an edge move to
//            (x_i + x_j)/2, one exchange at a time. Replies are running sums as well, so a lost one
//            delays the move of the asking end and destroys nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/graphs/topology.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"
#include "messages/random.hpp"

namespace grapevine {

enum class AveragingMethod { push_sum, symmetric, bilateral };

Expected<AveragingMethod> parse_averaging_method(const std::string& name);
std::vector<std::string> averaging_method_names();

// A numerator [dim] and its weight. They move together or not at all.
struct Mass {
  std::vector<double> x;
  double w = 0;

  // this += factor * other.
  void add(const Mass& other, double factor);
  void scale(double factor);
};

struct AveragingMessage {
  enum class Kind : std::uint8_t { share, request, reply };

  Rank from = 0;
  Rank to = 0;
  std::int64_t round = 0;
  Kind kind = Kind::share;
  Mass mass;  // share: the mass, or its running sum; request: the value; reply: running sum taken
  std::int64_t acknowledged = -1;  // request: round of the last reply that the sender applied
};

// The state of one rank. Handlers run one at a time and return messages to send.
class Averager {
 public:
  using Messages = std::vector<AveragingMessage>;

  Averager(std::shared_ptr<const Topology> topology, Rank rank, std::vector<double> value);
  virtual ~Averager() = default;

  // REQUIRES: rounds ascend.
  virtual Messages begin_round(std::int64_t round) = 0;
  virtual Messages on_message(const AveragingMessage& message) = 0;

  // This rank's part of the conserved mass: what it holds, plus all it sent, less all it received.
  // The sum over ranks is constant where the method survives losses; w counts ranks.
  virtual Mass ledger() const = 0;
  // All ranks may begin a round before any message arrives; otherwise the exchanges that a rank
  // begins must end before the next rank begins, or a pair would average outdated values.
  virtual bool concurrent() const = 0;

  const Mass& held() const { return held_; }
  // z = x / w, [dim].
  std::vector<double> estimate() const;

 protected:
  std::shared_ptr<const Topology> topology_;
  Rank rank_;
  Mass held_;
};

// `running_sums` matters to push-sum alone: without them a lost message is lost mass.
std::unique_ptr<Averager> make_averager(AveragingMethod method, bool running_sums,
                                        std::shared_ptr<const Topology> topology, Rank rank,
                                        std::vector<double> value);

struct AveragingOptions {
  AveragingMethod method = AveragingMethod::push_sum;
  bool running_sums = true;
  double drop = 0;  // probability that a message is lost, in [0, 1)
  std::uint64_t seed = 0;
};

struct AveragingReport {
  std::int64_t round = 0;    // rounds done
  double mean = 0;           // over ranks, of the estimates' coordinate 0
  double max_deviation = 0;  // over ranks and coordinates, of |estimate - true mean|
  double weight_sum = 0;     // over ranks, including the mass in lost messages
};

// All ranks of one averaging. Same arguments, same numbers.
class AveragingRun {
 public:
  // values[rank][coordinate]. Errors (bad_input): a drop probability outside [0, 1), values that do
  // not match the topology's ranks or differ in dimension, dimension < 1.
  static Expected<AveragingRun> start(std::shared_ptr<const Topology> topology,
                                      const std::vector<std::vector<double>>& values,
                                      const AveragingOptions& options);

  // One round: every rank begins, every message that is not dropped arrives.
  void advance();

  AveragingReport report() const;
  // The conserved mass of all ranks (see Averager::ledger).
  Mass total() const;
  const Averager& rank(Rank rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

 private:
  AveragingRun(std::vector<double> true_mean, double drop, std::uint64_t seed);

  void deliver(Averager::Messages messages);
  bool lost();

  std::vector<double> true_mean_;
  double drop_;
  Rng rng_;
  std::int64_t round_ = 0;
  std::vector<std::unique_ptr<Averager>> ranks_;
};

}  // namespace grapevine
