#include "apps/bench/bench_report.hpp"

#include <cstdio>
#include <utility>

namespace grapevine {

void BenchReport::add(std::int64_t bytes, std::vector<double> seconds) {
  const Quantiles times = quantiles_of(std::move(seconds));
  if (options_.json)
    print(record(bytes, times, bandwidth(bytes, times.median)));
  else
    print_line(bytes, times);
  out_.flush();
}

void BenchReport::add(PartialTimes partial) {
  const Quantiles times = quantiles_of(std::move(partial.seconds));
  if (options_.json) {
    nlohmann::ordered_json line = record(partial.bytes, times, nullptr);
    line["activation"] = partial.policy;
    line["skew_s"] = to_seconds(partial.skew);
    line["active_ranks"] = partial.active;
    print(line);
  } else {
    print_line(partial, times);
  }
  out_.flush();
}

double BenchReport::bandwidth(std::int64_t bytes, double seconds) const {
  const double share =
      options_.kind == "p2p" ? 1 : 2 * (options_.ranks - 1) / static_cast<double>(options_.ranks);
  return share * static_cast<double>(bytes) / seconds / 1e9;
}

nlohmann::ordered_json BenchReport::record(std::int64_t bytes, const Quantiles& times,
                                           const nlohmann::ordered_json& bandwidth) const {
  nlohmann::ordered_json line;
  line["kind"] = options_.kind;
  line["transport"] = options_.transport;
  line["ranks"] = options_.ranks;
  line["bytes"] = bytes;
  line["median_s"] = times.median;
  line["p10_s"] = times.p10;
  line["p99_s"] = times.p99;
  line["bandwidth_gbps"] = bandwidth;
  return line;
}

void BenchReport::print(const nlohmann::ordered_json& line) { out_ << line.dump() << '\n'; }

void BenchReport::print_line(std::int64_t bytes, const Quantiles& times) {
  if (!std::exchange(headed_, true)) print_head();
  char text[160];
  std::snprintf(text, sizeof text, "%12lld  %12.1f  %12.1f  %12.1f  %8.3f\n",
                static_cast<long long>(bytes), times.median * 1e6, times.p10 * 1e6, times.p99 * 1e6,
                bandwidth(bytes, times.median));
  out_ << text;
}

void BenchReport::print_line(const PartialTimes& partial, const Quantiles& times) {
  if (!std::exchange(headed_, true))
    out_ << "partial all-reduce over " << options_.transport << ", " << options_.ranks << " ranks, "
         << options_.iterations
         << " iterations; rank r is ready at r x skew; mean wait of a rank for the sum\n"
            "       bytes  skew, ms  activation        median, us       p10, us       p99, us  "
            "active ranks\n";
  char text[160];
  std::snprintf(text, sizeof text, "%12lld  %8.3f  %-14s  %12.1f  %12.1f  %12.1f  %12.2f\n",
                static_cast<long long>(partial.bytes), to_seconds(partial.skew) * 1e3,
                partial.policy.c_str(), times.median * 1e6, times.p10 * 1e6, times.p99 * 1e6,
                partial.active);
  out_ << text;
}

void BenchReport::print_head() {
  out_ << options_.kind << " over " << options_.transport << ", " << options_.ranks << " ranks, "
       << options_.iterations << " iterations; "
       << (options_.kind == "p2p"
               ? "time of a message from rank 0 to 1, up to 8 bytes of a round trip"
               : "bandwidth: 2(N-1)/N x bytes over the median time")
       << "\n       bytes    median, us       p10, us       p99, us      GB/s\n";
}

}  // namespace grapevine
