#include "apps/bench/bench_operations.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ostream>
#include <utility>

#include "apps/train/quantiles.hpp"

namespace grapevine {

Expected<std::vector<std::vector<double>>> time_operations(
    const std::vector<BenchOperation>& operations, std::int64_t iterations) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> seconds(operations.size());
  for (std::int64_t iteration = 0; iteration < iterations; ++iteration)
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto begin = Clock::now();
      if (auto done = operations[i].run(); !done) return done.error();
      seconds[i].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  return seconds;
}

void print_operation_json(std::ostream& out, const std::string& kind, std::int64_t bytes,
                          const BenchOperation& operation, std::vector<double> seconds,
                          const nlohmann::ordered_json& more) {
  const Quantiles times = quantiles_of(std::move(seconds));
  nlohmann::ordered_json line = {{"kind", kind},
                                 {"transport", "inproc"},
                                 {"ranks", 1},
                                 {"operation", operation.name},
                                 {"bytes", bytes}};
  line.update(more);
  line["median_s"] = times.median;
  line["p10_s"] = times.p10;
  line["p99_s"] = times.p99;
  line["bandwidth_gbps"] = operation.bytes / times.median / 1e9;
  out << line.dump() << std::endl;
}

void print_operations_title(std::ostream& out, const std::string& kind, std::int64_t iterations,
                            const std::string& meaning, const std::string& place) {
  out << fmt::format("{}, {} iterations; GB/s: {} over the median time\n", kind, iterations,
                     meaning)
      << fmt::format("{:>22}  {:<14}  {:>10}  {:>10}  {:>10}  {:>8}\n", place, "operation",
                     "median, ms", "p10, ms", "p99, ms", "GB/s");
}

void print_operation_line(std::ostream& out, const std::string& place,
                          const BenchOperation& operation, std::vector<double> seconds) {
  const Quantiles times = quantiles_of(std::move(seconds));
  out << fmt::format("{:>22}  {:<14}  {:>10.3f}  {:>10.3f}  {:>10.3f}  {:>8.3f}\n", place,
                     operation.name, times.median * 1e3, times.p10 * 1e3, times.p99 * 1e3,
                     operation.bytes / times.median / 1e9)
      << std::flush;
}

}  // namespace grapevine
