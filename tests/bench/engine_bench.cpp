// The engine's overhead: SGP in process, four workers, QuadraticCompute, in one process with
// everything that training has except a model. `floor` is the time that memcpy would need for the
// bytes that a step must move; `over_floor` is the measured step over it.
//
// Passes over memory of one rank's step without overlap (d floats each):
//   gradient   reads z, writes g                            2
//   step       reads x, g, v, writes x (scaled share), v    5
//   fold       reads own share and one peer's, writes x     3
#include <benchmark/benchmark.h>

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>

#include "actors/run/runtime.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/math_threads.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace {

constexpr std::int32_t kWorkers = 4;
constexpr double kPassesPerStep = 10;

bool smoke() { return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr; }
std::int64_t parameters() { return smoke() ? 10'000 : 25'000'000; }
Step steps() { return smoke() ? 4 : 12; }

struct Waiting : RunObserver {
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { promise.set_value(std::move(result)); }
  std::promise<RunResult> promise;
};

RunConfig make_run(const std::string& preset) {
  LrConfig rate;
  rate.lr = 0.01;
  OptimizerConfig optimizer;
  optimizer.momentum = 0.9;
  RunConfig run;
  run.ranks = kWorkers;
  run.parts = *make_parts(*resolve(find_preset(preset)->wiring), {steps(), 1e9},
                          *LrSchedule::make(rate), optimizer, kWorkers);
  run.transport = make_inproc_transport(kWorkers);
  for (Rank r = 0; r < kWorkers; ++r) {
    QuadraticConfig quadratic;
    quadratic.dimension = parameters();
    quadratic.rank = r;
    quadratic.ranks = kWorkers;
    run.computes.push_back(std::move(*QuadraticCompute::make(quadratic)));
  }
  return run;
}

// Bytes per second that all cores together read and write by memcpy, best of five.
double memcpy_bytes_per_second() {
  const unsigned threads = std::max(1u, std::min(std::thread::hardware_concurrency(), 4u));
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
double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void engine_step(benchmark::State& state, const std::string& preset) {
  limit_math_threads(1);
  const double bandwidth = memcpy_bytes_per_second();
  const double floor_s =
      kPassesPerStep * 4.0 * static_cast<double>(parameters()) * kWorkers / bandwidth;
  std::vector<double> step_s;
  double memory = 0;
  for (auto _ : state) {
    RunConfig run = make_run(preset);
    const double before = resident_bytes();
    const auto observer = std::make_shared<Waiting>();
    auto future = observer->promise.get_future();
    RunResult result;
    {
      Runtime runtime(std::move(run), observer);
      while (future.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready)
        memory = std::max(memory, resident_bytes() - before);
      result = future.get();
    }
    GRAPEVINE_CHECK(!result.error, result.error->message);
    // The first steps touch fresh memory; they are not what a run consists of.
    std::vector<double> steady(result.step_seconds.begin(), result.step_seconds.end());
    step_s.push_back(median(steady));
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

}  // namespace
}  // namespace grapevine

BENCHMARK_MAIN();
