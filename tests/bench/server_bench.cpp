// One parameter server, 1 to 100 workers in one process, 160 k parameters, strict sections (gem)
// and offers (downpour). A worker's gradient takes 1 ms in which its thread sleeps, as beside an
// accelerator. `of_floor` is the rate of commits over the one that a single core's memcpy allows
// for the bytes that must move while nobody else is served:
//   gem       rescale reads delta, m, theta, s, writes u; commit reads theta, u, writes theta   8 d
//   downpour  commit reads theta, u, writes theta                                               3 d
#include "gpu/threads/math_threads.hpp"
#include "tests/bench/bench_run.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kParameters = 160'000;
constexpr Duration kGradientTime = std::chrono::milliseconds(1);

Step commits() { return smoke() ? 100 : 8000; }  // of all workers

RunConfig make_run(const std::string& preset, std::int32_t workers) {
  RunConfig run = grapevine::make_run(
      {preset, workers, kParameters, std::max<Step>(1, commits() / workers), 1e-4});
  run.delay.add([](Rank, Step) { return kGradientTime; });
  return run;
}

void server_commits(benchmark::State& state, const std::string& preset, double passes) {
  limit_math_threads(1);
  const auto workers = static_cast<std::int32_t>(state.range(0));
  const double floor = memcpy_bytes_per_second(1) / (passes * 4.0 * kParameters);
  double best = 0, occupancy = 0, p99 = 0;
  for (auto _ : state) {
    const RunResult result = run_to_end(make_run(preset, workers)).run;
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
