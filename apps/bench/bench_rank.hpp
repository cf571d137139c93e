// One rank of `grapevine bench`, over any transport.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/compressors/settings.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"
#include "net/transport.hpp"

namespace grapevine {

struct BenchPlan {
  std::vector<std::int64_t> bytes;  // one measurement each, in this order
  std::int64_t iterations = 1;
  ExactReduce all_reduce = ExactReduce::automatic;
  // A rank that receives nothing for so long gives up.
  Duration timeout = std::chrono::seconds(60);
};

// The errors of a rank that receives nothing for `timeout`, or that loses `peer`.
Error nothing_received(Rank rank, Duration timeout);
Error lost(Rank rank, Rank peer);

// The times of all iterations with `bytes`, in seconds. Called only on rank 0.
using OnTimes = std::function<void(std::int64_t bytes, std::vector<double> seconds)>;

// A rank of a measurement: attached to its transport at first (a message to a rank that is not
// attached may be dropped), then run by one thread.
class BenchRank {
 public:
  virtual ~BenchRank() = default;
  virtual Expected<void> attach() = 0;
  // Until the last measurement is over. Errors: peer_down, timeout: which rank is missing; failed:
  // a result is wrong. REQUIRES: attach() has succeeded; once.
  virtual Expected<void> run(const OnTimes& on_times) = 0;
};

// The time of a message from rank 0 to rank 1. Up to kRoundTripBytes: a round trip, answered with
// as many bytes. Beyond, a message's share of the time of point_to_point_burst() in a row, of which
// the last one is answered with 8 bytes: that answer is counted in. Further ranks are idle.
inline constexpr std::int64_t kRoundTripBytes = 8;
std::int64_t point_to_point_burst(std::int64_t bytes);
std::shared_ptr<BenchRank> make_point_to_point_rank(Transport& transport, Rank rank,
                                                    const BenchPlan& plan);

// The time of the exact all-reduce over floats, from a barrier of all ranks until the sum is there
// on rank 0. The first sum of each size, of pseudo-random values, is compared on every rank with
// one taken in the order that it promises, bit by bit.
std::shared_ptr<BenchRank> make_all_reduce_rank(Transport& transport, Rank rank,
                                                const BenchPlan& plan);

}  // namespace grapevine
