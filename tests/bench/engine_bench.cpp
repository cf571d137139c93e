// The engine's overhead: training in process, four workers, QuadraticCompute, in one process with
// everything that training has except a model. `floor` is the time that memcpy would need for the
// bytes that a step must move; `over_floor` is the measured step over it.
//
// Passes over memory of one rank's step without overlap (d floats each):
//   gradient   reads z, writes g                            2
//   step       reads x, g, v, writes x (scaled share), v    5
//   fold       reads own share and one peer's, writes x     3
//
// engine_growth: what a step of a rank costs, by the number of workers and of parameters, so that a
// term that grows faster than they do is seen. With one parameter a step is empty: the cost is that
// of messages between actors.
#include <sys/resource.h>

#include "gpu/threads/math_threads.hpp"
#include "tests/bench/bench_run.hpp"

namespace grapevine {
namespace {

constexpr std::int32_t kWorkers = 4;
constexpr double kPassesPerStep = 10;

std::int64_t parameters() { return smoke() ? 10'000 : 25'000'000; }

void engine_step(benchmark::State& state, const std::string& preset) {
  limit_math_threads(1);
  const double bandwidth =
      memcpy_bytes_per_second(std::max(1u, std::min(std::thread::hardware_concurrency(), 4u)));
  const double floor_s =
      kPassesPerStep * 4.0 * static_cast<double>(parameters()) * kWorkers / bandwidth;
  std::vector<double> step_s;
  double memory = 0;
  for (auto _ : state) {
    const BenchResult result =
        run_to_end(make_run({preset, kWorkers, parameters(), smoke() ? 4 : 12}));
    memory = std::max(memory, result.peak_bytes);
    // The first steps touch fresh memory; they are not what a run consists of.
    step_s.push_back(median(result.run.step_seconds));
  }
  state.counters["step_ms"] = 1e3 * median(step_s);
  state.counters["floor_ms"] = 1e3 * floor_s;
  state.counters["over_floor"] = median(step_s) / floor_s;
  state.counters["memory_per_worker_in_d"] =
      memory / kWorkers / (4.0 * static_cast<double>(parameters()));
}
BENCHMARK_CAPTURE(engine_step, sgp, "sgp")->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK_CAPTURE(engine_step, osgp, "osgp")->Unit(benchmark::kMillisecond)->Iterations(3);
BENCHMARK_CAPTURE(engine_step, ar, "ar")->Unit(benchmark::kMillisecond)->Iterations(3);

// User and system time of this process.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// About a second of work: bounded by messages where d is small, and by bytes where it is large.
Step steps_of(std::int64_t workers, std::int64_t dimension) {
  if (smoke()) return 3;
  const std::int64_t by_messages = 100'000 / workers;
  const std::int64_t by_bytes = 400'000'000 / (workers * dimension);
  return std::max<Step>(8, std::min(by_messages, by_bytes));
}

// Arguments: workers, parameters.
void engine_growth(benchmark::State& state, const std::string& preset) {
  limit_math_threads(1);
  const auto workers = static_cast<std::int32_t>(state.range(0));
  const std::int64_t dimension =
      smoke() ? std::min<std::int64_t>(state.range(1), 10'000) : state.range(1);
  const Step steps = steps_of(workers, dimension);
  double rank_steps = 0, wall = 0, processor = 0, messages = 0, memory = 0;
  for (auto _ : state) {
    const double before = processor_seconds();
    const BenchResult result = run_to_end(make_run({preset, workers, dimension, steps}));
    processor += processor_seconds() - before;
    wall += result.run.seconds;
    messages += static_cast<double>(result.run.ledger.sent);
    rank_steps += static_cast<double>(steps) * workers;
    memory = std::max(memory, result.peak_bytes);
  }
  state.counters["step_us"] = 1e6 * wall / rank_steps;  // of one rank, on all cores
  state.counters["cpu_us_per_step"] = 1e6 * processor / rank_steps;
  state.counters["messages_per_step"] = messages / rank_steps;
  state.counters["messages_per_cpu_s"] = messages / processor;
  state.counters["memory_per_worker"] = memory / workers;
}

void growth(benchmark::internal::Benchmark* b) {
  for (std::int64_t d : {1, 10'000, 100'000})
    for (std::int64_t workers : {2, 4, 8, 16, 32, 64}) b->Args({workers, d});
  for (std::int64_t d : {1'000'000, 10'000'000, 100'000'000}) b->Args({2, d});
  b->Unit(benchmark::kMillisecond)->Iterations(1);
}
BENCHMARK_CAPTURE(engine_growth, sgp, "sgp")->Apply(growth);
BENCHMARK_CAPTURE(engine_growth, osgp, "osgp")->Apply(growth);
BENCHMARK_CAPTURE(engine_growth, ar, "ar")->Apply(growth);

}  // namespace
}  // namespace grapevine

BENCHMARK_MAIN();
