// The ranks of a benchmark: all in this process, or each in a process of its own.
#pragma once
#include <map>
#include <string>

#include "algorithms/compressors/settings.hpp"
#include "apps/bench/bench_options.hpp"
#include "apps/bench/bench_report.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// By their names in a wiring.
const std::map<std::string, ExactReduce>& all_reduces();

// All ranks in this process.
Expected<void> run_inproc(const BenchOptions& options, BenchReport& report);
// The rank of this process, which run_processes() has started.
Expected<void> run_rank(const BenchOptions& options, BenchReport& report);
// The processes print for this one: rank 0 its results, all of them their errors.
Expected<void> run_processes(const BenchOptions& options, Console& console);

}  // namespace grapevine
