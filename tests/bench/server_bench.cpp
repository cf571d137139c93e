// One parameter server, 1 to 100 workers in one process, 160 k parameters, strict sections (gem)
// and offers (downpour). A worker's gradient takes 1 ms in which its thread sleeps, as beside an
// accelerator. `of_floor` is the rate of commits over the one that a single core's memcpy allows
// for the bytes that must move while nobody else is served:
//   gem       rescale reads delta, m, theta, s, writes u; commit reads theta, u, writes theta   8 d
//   downpour  commit reads theta, u, writes theta                                               3 d
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>

#include "actors/run/runtime.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/math_threads.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kParameters = 160'000;
constexpr Duration kGradientTime = std::chrono::milliseconds(1);

bool smoke() { return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr; }
Step commits() { return smoke() ? 100 : 8000; }  // of all workers

struct Waiting : RunObserver {
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { promise.set_value(std::move(result)); }
  std::promise<RunResult> promise;
};

RunConfig make_run(const std::string& preset, std::int32_t workers) {
  LrConfig rate;
  rate.lr = 1e-4;
  OptimizerConfig optimizer;
  optimizer.momentum = 0.9;
  const Plan plan = *resolve(find_preset(preset)->wiring);
  RunConfig run;
  run.ranks = all_ranks_of(plan, workers);
  run.parts = *make_parts(plan, {std::max<Step>(1, commits() / workers), 1e9},
                          *LrSchedule::make(rate), optimizer, workers);
  run.transport = make_inproc_transport(run.ranks);
  run.delay.add([](Rank, Step) { return kGradientTime; });
  run.trace.on = false;
  for (Rank r = 0; r < workers; ++r) {
    QuadraticConfig quadratic;
    quadratic.dimension = kParameters;
    quadratic.rank = r;
    quadratic.ranks = workers;
    run.computes.push_back(std::move(*QuadraticCompute::make(quadratic)));
  }
  return run;
}

// Bytes per second that one core reads and writes by memcpy beyond its caches, best of five.
double memcpy_bytes_per_second() {
  const std::size_t bytes = smoke() ? 1 << 16 : 100'000'000;
  std::vector<char> from(bytes, 1), to(bytes);
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds.count());
  }
  return best;
}

void server_commits(benchmark::State& state, const std::string& preset, double passes) {
  limit_math_threads(1);
  const auto workers = static_cast<std::int32_t>(state.range(0));
  const double floor = memcpy_bytes_per_second() / (passes * 4.0 * kParameters);
  double best = 0, occupancy = 0, p99 = 0;
  for (auto _ : state) {
    const auto observer = std::make_shared<Waiting>();
    auto future = observer->promise.get_future();
    Runtime runtime(make_run(preset, workers), observer);
    const RunResult result = future.get();
    GRAPEVINE_CHECK(!result.error, result.error->message);
    const StateDict& measures = result.measures.at(workers);
    const double rate = static_cast<double>(*measures.integer("commits")) / result.seconds;
    if (rate <= best) continue;
    best = rate;
    occupancy = *measures.number("occupancy");
    p99 = *measures.number("wait_p99_s");
  }
  state.counters["commits_per_s"] = best;
  state.counters["floor_per_s"] = floor;
  state.counters["of_floor"] = best / floor;
  state.counters["occupancy"] = occupancy;
  state.counters["wait_p99_ms"] = 1e3 * p99;
}

void shapes(benchmark::internal::Benchmark* b) {
  b->Arg(1)->Arg(8)->Arg(32)->Arg(100)->Unit(benchmark::kMillisecond)->Iterations(3);
}
BENCHMARK_CAPTURE(server_commits, gem, "gem", 8)->Apply(shapes);
BENCHMARK_CAPTURE(server_commits, downpour, "downpour", 3)->Apply(shapes);

}  // namespace
}  // namespace grapevine

BENCHMARK_MAIN();
