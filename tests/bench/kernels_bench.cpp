// Kernels against the memory's own speed, and the fused SGD step against torch::optim::SGD.
// bytes_per_second counts what an algorithm must touch (reads + writes, without write-allocation),
// so that all lines compare with memcpy.
#include "algorithms/kernels/kernels.hpp"

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>

#include "algorithms/parts/optimizer.hpp"

namespace grapevine {
namespace {

// 25 M parameters (ResNet-50), 100 MB; a smoke run only shows that everything runs.
std::int64_t parameters() {
  return std::getenv("GRAPEVINE_BENCH_SMOKE") != nullptr ? 10'000 : 25'000'000;
}

at::Tensor filled() { return torch::randn({parameters()}); }

void count_bytes(benchmark::State& state, std::int64_t touched_per_element) {
  state.SetBytesProcessed(state.iterations() * touched_per_element * parameters() *
                          static_cast<std::int64_t>(sizeof(float)));
}

void memcpy_bandwidth(benchmark::State& state) {
  const at::Tensor from = filled();
  at::Tensor to = filled();
  for (auto _ : state) {
    std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}
BENCHMARK(memcpy_bandwidth);

void scale(benchmark::State& state) {
  at::Tensor x = filled();
  for (auto _ : state) kernels::scale(x, 0.999999);
  count_bytes(state, 2);
}
BENCHMARK(scale);

void fold(benchmark::State& state) {
  at::Tensor x = filled();
  const at::Tensor share = filled();
  for (auto _ : state) kernels::fold(x, share);
  count_bytes(state, 3);
}
BENCHMARK(fold);

void fold_into(benchmark::State& state) {
  at::Tensor out = filled();
  const at::Tensor a = filled(), b = filled();
  for (auto _ : state) kernels::fold_into(out, a, b);
  count_bytes(state, 3);
}
BENCHMARK(fold_into);

void debias(benchmark::State& state) {
  at::Tensor z = filled();
  const at::Tensor x = filled();
  for (auto _ : state) kernels::debias(z, x, 0.7);
  count_bytes(state, 2);
}
BENCHMARK(debias);

constexpr kernels::SgdStep kStep{1e-6, 0.9, 0, false, 0.5};

void sgd_step_in_place(benchmark::State& state) {
  at::Tensor x = filled(), velocity = filled();
  const at::Tensor gradient = filled();
  for (auto _ : state) kernels::sgd_step(x, velocity, gradient, kStep);
  count_bytes(state, 5);
}
BENCHMARK(sgd_step_in_place);

void sgd_step_out_of_place(benchmark::State& state) {
  at::Tensor out = filled(), velocity = filled();
  const at::Tensor x = filled(), gradient = filled();
  for (auto _ : state) kernels::sgd_step_into(out, x, velocity, gradient, kStep);
  count_bytes(state, 5);
}
BENCHMARK(sgd_step_out_of_place);

// Arguments of the next two: nesterov, weight decay on or off. Both count the 5 touches that the
// rule needs, so that their ratio is the ratio of their times.
constexpr double kDecay = 1e-4;

void sgd_of_torch_optim(benchmark::State& state) {
  at::Tensor x = filled();
  x.mutable_grad() = filled();
  torch::optim::SGD optimizer({x}, torch::optim::SGDOptions(1e-6)
                                       .momentum(0.9)
                                       .nesterov(state.range(0) != 0)
                                       .weight_decay(state.range(1) != 0 ? kDecay : 0));
  optimizer.step();  // the first one makes the state
  for (auto _ : state) optimizer.step();
  count_bytes(state, 5);
}
BENCHMARK(sgd_of_torch_optim)->ArgNames({"nesterov", "decay"})->ArgsProduct({{0, 1}, {0, 1}});

void optimizer_step(benchmark::State& state, const OptimizerConfig& config) {
  std::unique_ptr<Optimizer> optimizer = *make_optimizer(config);
  at::Tensor x = filled(), gradient = filled();
  optimizer->step(x, gradient, 1e-6);  // the first one makes the state
  for (auto _ : state) optimizer->step(x, gradient, 1e-6);
}

void sgd_of_grapevine(benchmark::State& state) {
  optimizer_step(state, {"sgd", 0.9, state.range(0) != 0, state.range(1) != 0 ? kDecay : 0});
  count_bytes(state, 5);
}
BENCHMARK(sgd_of_grapevine)->ArgNames({"nesterov", "decay"})->ArgsProduct({{0, 1}, {0, 1}});

void adam(benchmark::State& state) {
  optimizer_step(state, {"adam"});
  count_bytes(state, 7);
}
BENCHMARK(adam);

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) {
  torch::set_num_threads(1);  // as many as one rank of several has
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
