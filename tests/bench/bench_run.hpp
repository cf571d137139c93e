// What the benchmarks of whole runs share: training in this process without a model
// (QuadraticCompute), with everything else that training has.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>

#include "actors/run/runtime.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {

// The tests run each benchmark once, with small sizes.
inline bool smoke() { return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr; }

// Keeps the result of a run.
struct Waiting : RunObserver {
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { promise.set_value(std::move(result)); }
  std::promise<RunResult> promise;
};

struct BenchRun {
  std::string preset;
  std::int32_t workers = 4;
  std::int64_t parameters = 0;
  Step steps = 1;
  double lr = 0.01;
};

inline RunConfig make_run(const BenchRun& bench) {
  LrConfig rate;
  rate.lr = bench.lr;
  OptimizerConfig optimizer;
  optimizer.momentum = 0.9;
  const Plan plan = *resolve(find_preset(bench.preset)->wiring);
  RunConfig run;
  run.ranks = all_ranks_of(plan, bench.workers);
  run.parts =
      *make_parts(plan, {bench.steps, 1e9}, *LrSchedule::make(rate), optimizer, bench.workers);
  run.transport = make_inproc_transport(run.ranks);
  run.trace.on = false;
  for (Rank r = 0; r < bench.workers; ++r) {
    QuadraticConfig quadratic;
    quadratic.dimension = bench.parameters;
    quadratic.rank = r;
    quadratic.ranks = bench.workers;
    run.computes.push_back(std::move(*QuadraticCompute::make(quadratic)));
  }
  return run;
}

// Bytes per second that so many threads together read and write by memcpy beyond the caches, best
// of five.
inline double memcpy_bytes_per_second(unsigned threads) {
  const std::size_t bytes = smoke() ? 1 << 16 : 100'000'000;
  double best = 0;
  std::vector<std::vector<char>> from(threads, std::vector<char>(bytes, 1)), to = from;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::future<void>> copies;
    for (unsigned t = 0; t < threads; ++t)
      copies.push_back(std::async(std::launch::async, [&, t] {
        std::memcpy(to[t].data(), from[t].data(), bytes);
        benchmark::ClobberMemory();
      }));
    for (auto& copy : copies) copy.get();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * static_cast<double>(bytes) * threads / seconds.count());
  }
  return best;
}

// Resident set in bytes; 0 where the system does not say.
inline double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

struct BenchResult {
  RunResult run;
  double peak_bytes = 0;  // of the resident set, more than before the run
};

// REQUIRES: a run without an error.
inline BenchResult run_to_end(RunConfig run) {
  BenchResult result;
  const double before = resident_bytes();
  const auto observer = std::make_shared<Waiting>();
  auto future = observer->promise.get_future();
  Runtime runtime(std::move(run), observer);
  while (future.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready)
    result.peak_bytes = std::max(result.peak_bytes, resident_bytes() - before);
  result.run = future.get();
  GRAPEVINE_CHECK(!result.run.error, result.run.error->message);
  return result;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace grapevine
