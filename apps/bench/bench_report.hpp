// BenchReport: the output of the benchmarks of ranks.
#pragma once
#include <cstdint>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/bench/bench_options.hpp"
#include "apps/bench/bench_partial.hpp"
#include "apps/train/quantiles.hpp"

namespace grapevine {

// Prints a line for each size.
class BenchReport {
 public:
  BenchReport(const BenchOptions& options, std::ostream& out) : options_(options), out_(out) {}

  void add(std::int64_t bytes, std::vector<double> seconds);
  void add(PartialTimes partial);

 private:
  // In 1e9 bytes/s, of the payload one way or over the bus.
  double bandwidth(std::int64_t bytes, double seconds) const;

  // The output of every kind.
  nlohmann::ordered_json record(std::int64_t bytes, const Quantiles& times,
                                const nlohmann::ordered_json& bandwidth) const;
  void print(const nlohmann::ordered_json& line);
  void print_line(std::int64_t bytes, const Quantiles& times);
  void print_line(const PartialTimes& partial, const Quantiles& times);
  void print_head();

  const BenchOptions& options_;
  std::ostream& out_;
  bool headed_ = false;
};

}  // namespace grapevine
