// The options of `grapevine bench`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace grapevine {

struct BenchOptions {
  std::string kind;
  std::string transport = "inproc";
  std::int32_t ranks = 2;
  std::vector<std::int64_t> bytes = {8, 1'000, 1'000'000, 25'000'000, 100'000'000};
  std::int64_t iterations = 20;
  std::vector<std::string> skew = {"0ms", "1ms", "4ms"};  // partial
  std::string all_reduce = "auto";                        // allreduce: as in a wiring
  std::int32_t quorum = 0;                                // partial; 0: more than half
  std::vector<double> densities = {0.001, 0.01};          // sparse
  std::string tls;                                        // folder; empty: no encryption
  bool json = false;
  // Of the processes that this verb starts; not shown by --help.
  std::int32_t as_rank = -1;
  std::string meet_in;
};

}  // namespace grapevine
