#include "apps/bench/bench_mix.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <ostream>
#include <string>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "apps/bench/bench_operations.hpp"
#include "gpu/threads/math_threads.hpp"

namespace grapevine {
namespace {

// Every step makes the values a little smaller: none becomes infinite or denormal in millions of
// iterations.
constexpr double kRate = 1e-3, kMomentum = 0.9;

at::Tensor model_like(std::int64_t elements, std::uint64_t seed) {
  return at::randn({elements}, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kFloat));
}

// The same step by torch's operators, each a pass.
void torch_step(at::Tensor& x, at::Tensor& velocity, const at::Tensor& gradient) {
  velocity.mul_(kMomentum).add_(gradient);
  x.add_(velocity, -kRate);
}

class MixOperations {
 public:
  explicit MixOperations(std::int64_t elements)
      : x_(model_like(elements, 1)),
        other_(model_like(elements, 2)),
        gradient_(model_like(elements, 3)),
        velocity_(at::zeros_like(x_)),
        out_(at::empty_like(x_)),
        half_(at::empty_like(x_)) {}

  Expected<void> check() const {
    at::Tensor mine = x_.clone(), theirs = x_.clone();
    at::Tensor mine_v = at::zeros_like(x_), theirs_v = at::zeros_like(x_);
    for (int step = 0; step < 2; ++step) {
      kernels::sgd_step(mine, mine_v, gradient_, step_with(1));
      torch_step(theirs, theirs_v, gradient_);
    }
    if (at::allclose(mine, theirs, 1e-5, 1e-6)) return {};
    return Error{Errc::failed, "bench mix: the fused step differs from torch's"};
  }

  std::vector<BenchOperation> all() {
    const auto n = static_cast<double>(x_.nbytes());
    const auto done = [](auto f) {
      return [f] {
        f();
        return Expected<void>();
      };
    };
    return {{"memcpy", 2 * n,
             done([this] { std::memcpy(out_.data_ptr(), x_.data_ptr(), x_.nbytes()); })},
            {"fold", 3 * n, done([this] { kernels::fold_into(out_, x_, other_); })},
            {"meet", 4 * n, done([this] { kernels::meet_into(out_, half_, x_, other_); })},
            {"debias", 2 * n, done([this] { kernels::debias(out_, x_, 0.75); })},
            {"sgd-step", 5 * n, done([this] {
               kernels::sgd_step_into(out_, x_, velocity_, gradient_, step_with(1));
             })},
            {"torch-sgd", 5 * n, done([this] { torch_step(out_, velocity_, gradient_); })},
            {"push-sum-step", 10 * n, done([this] {
               kernels::sgd_step_into(out_, x_, velocity_, gradient_, step_with(0.5));
               kernels::fold(out_, other_);
               kernels::debias(half_, out_, 1.5);
             })}};
  }

 private:
  static kernels::SgdStep step_with(double scale) {
    kernels::SgdStep step;
    step.lr = kRate;
    step.momentum = kMomentum;
    step.scale = scale;
    return step;
  }

  at::Tensor x_, other_, gradient_, velocity_, out_, half_;
};

}  // namespace

Expected<void> run_mix_bench(const MixBenchOptions& options, std::ostream& out) {
  limit_math_threads(1);
  if (!options.json)
    print_operations_title(out, "mix", options.iterations, "bytes read and written once each");
  for (const std::int64_t bytes : options.bytes) {
    MixOperations mix(bytes / std::int64_t{sizeof(float)});
    if (auto right = mix.check(); !right) return right;
    const std::vector<BenchOperation> operations = mix.all();
    auto seconds = time_operations(operations, options.iterations);
    if (!seconds) return seconds.error();
    for (std::size_t i = 0; i < operations.size(); ++i)
      if (options.json)
        print_operation_json(out, "mix", bytes, operations[i], std::move((*seconds)[i]),
                             nlohmann::ordered_json::object());
      else
        print_operation_line(out, std::to_string(bytes), operations[i], std::move((*seconds)[i]));
  }
  return {};
}

}  // namespace grapevine
