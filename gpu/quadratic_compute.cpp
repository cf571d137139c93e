#include "gpu/quadratic_compute.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "gpu/model/gradient_parts.hpp"
#include "messages/random.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kOptimumStream = 0x6f7074696d;  // messages/random.hpp: one purpose each
constexpr std::uint64_t kSignStream = 0x7369676e;
constexpr std::uint64_t kNoiseStream = 0x6e6f697365;

// Uniform in [-1, 1).
double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-52 - 1.0; }

// s_r: mean 0 and mean square 1 over the ranks; 0 for a single rank.
double rank_offset(Rank rank, std::int64_t ranks) {
  if (ranks < 2) return 0;
  const auto n = static_cast<double>(ranks);
  return (rank - (n - 1) / 2) / std::sqrt((n * n - 1) / 12);
}

std::size_t table_size(const QuadraticConfig& config) {
  return static_cast<std::size_t>(std::min(config.dimension, QuadraticCompute::kPeriod));
}

std::vector<float> make_curvature(const QuadraticConfig& config) {
  std::vector<float> table(table_size(config));
  const double ratio = config.curvature_max / config.curvature_min;
  const double last = std::max<double>(1, static_cast<double>(table.size()) - 1);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] =
        static_cast<float>(config.curvature_min * std::pow(ratio, static_cast<double>(i) / last));
  return table;
}

std::vector<float> make_optimum(const QuadraticConfig& config, double offset) {
  std::vector<float> table(table_size(config));
  const std::uint64_t values = mix_seed(config.seed, kOptimumStream);
  const std::uint64_t signs = mix_seed(config.seed, kSignStream);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double sign = (mix_seed(signs, i) >> 63) != 0 ? -1.0 : 1.0;
    table[i] = static_cast<float>(to_unit(mix_seed(values, i)) + offset * sign);
  }
  return table;
}

// Repeats `table` over d elements.
at::Tensor repeat(const std::vector<float>& table, std::int64_t d) {
  at::Tensor all = at::empty({d}, at::kFloat);
  float* out = all.data_ptr<float>();
  const auto period = static_cast<std::int64_t>(table.size());
  for (std::int64_t begin = 0; begin < d; begin += period)
    std::copy_n(table.data(), std::min(period, d - begin), out + begin);
  return all;
}

// Σ a (z − c)² over one segment of at most a period; with `gradient`, a (z − c) goes there. Eight
// sums side by side, because the compiler may not reorder a single one to vectorise it.
double segment_loss(const float* z, const float* a, const float* c, std::int64_t n,
                    float* gradient) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::int64_t k = 0; k < 8; ++k) {
      const float distance = z[i + k] - c[i + k];
      const float slope = a[i + k] * distance;
      if (gradient != nullptr) gradient[i + k] = slope;
      sums[static_cast<std::size_t>(k)] += static_cast<double>(slope) * distance;
    }
  }
  for (; i < n; ++i) {
    const float distance = z[i] - c[i];
    const float slope = a[i] * distance;
    if (gradient != nullptr) gradient[i] = slope;
    sums[0] += static_cast<double>(slope) * distance;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double half_sum(const FrozenTensor& z, const std::vector<float>& a, const std::vector<float>& c,
                float* gradient) {
  const auto* values = z.data<float>();
  const auto period = static_cast<std::int64_t>(a.size());
  double total = 0;
  for (std::int64_t begin = 0; begin < z.numel(); begin += period) {
    const std::int64_t n = std::min(period, z.numel() - begin);
    float* out = gradient != nullptr ? gradient + begin : nullptr;
    total += segment_loss(values + begin, a.data(), c.data(), n, out);
  }
  return 0.5 * total;
}

}  // namespace

Expected<std::unique_ptr<QuadraticCompute>> QuadraticCompute::make(const QuadraticConfig& config) {
  const auto fail = [](const std::string& what, double value, const std::string& remedy) {
    return bad_input("quadratic loss: " + what + " is " + std::to_string(value) + ": " + remedy);
  };
  if (config.dimension < 1)
    return fail("dimension", static_cast<double>(config.dimension), "use at least 1");
  if (config.ranks < 1) return fail("ranks", static_cast<double>(config.ranks), "use at least 1");
  if (config.rank < 0 || config.rank >= config.ranks)
    return fail("rank", config.rank, "use 0 to ranks - 1");
  if (config.batch_size < 1)
    return fail("batch size", static_cast<double>(config.batch_size), "use at least 1");
  if (!(config.curvature_min > 0))
    return fail("curvature_min", config.curvature_min, "use a number above 0");
  if (!(config.curvature_max >= config.curvature_min) || !std::isfinite(config.curvature_max))
    return fail("curvature_max", config.curvature_max, "use a number not below curvature_min");
  if (!(config.heterogeneity >= 0) || !std::isfinite(config.heterogeneity))
    return fail("heterogeneity", config.heterogeneity, "use 0 or more");
  if (!(config.noise >= 0) || !std::isfinite(config.noise))
    return fail("noise", config.noise, "use 0 or more");
  return std::unique_ptr<QuadraticCompute>(new QuadraticCompute(config));
}

QuadraticCompute::QuadraticCompute(const QuadraticConfig& config)
    : config_(config),
      curvature_(make_curvature(config)),
      optimum_(make_optimum(config, 0)),
      own_optimum_(
          make_optimum(config, config.heterogeneity * rank_offset(config.rank, config.ranks))) {}

at::Tensor QuadraticCompute::optimum() const { return repeat(optimum_, config_.dimension); }

at::Tensor QuadraticCompute::own_optimum() const { return repeat(own_optimum_, config_.dimension); }

double QuadraticCompute::optimal_loss() const {
  if (config_.ranks < 2) return 0;
  const auto period = std::max<std::int64_t>(1, static_cast<std::int64_t>(curvature_.size()));
  double of_period = 0;
  double of_rest = 0;
  for (std::int64_t i = 0; i < period; ++i) {
    const double a = curvature_[static_cast<std::size_t>(i)];
    of_period += a;
    if (i < config_.dimension % period) of_rest += a;
  }
  const double sum = of_period * static_cast<double>(config_.dimension / period) + of_rest;
  return 0.5 * config_.heterogeneity * config_.heterogeneity * sum;
}

FrozenTensor QuadraticCompute::initial_parameters() const {
  return FrozenTensor::freeze(at::zeros({config_.dimension}, at::kFloat));
}

Gradient QuadraticCompute::gradient(GradientRequest request) {
  Gradient result;
  result.step = request.step;
  const FrozenTensor z = std::exchange(request.z, {});
  const Expected<void> valid = check_z(z);
  if (!valid) {
    result.error = valid.error().message;
    return result;
  }
  const auto start = std::chrono::steady_clock::now();
  const bool fits = request.recycled.sole_owner() &&
                    request.recycled.numel() == config_.dimension &&
                    request.recycled.dtype() == at::kFloat && request.recycled.device().is_cpu();
  at::Tensor flat =
      fits ? std::move(request.recycled).thaw() : empty_to_send({config_.dimension}, at::kFloat);
  result.loss = half_sum(z, curvature_, own_optimum_, flat.data_ptr<float>());
  if (!std::isfinite(result.loss)) {
    result.error = "rank " + std::to_string(config_.rank) + ": loss is not finite at step " +
                   std::to_string(request.step) + ": lower the learning rate";
    return result;
  }
  if (config_.noise > 0) add_noise(request.step, flat.data_ptr<float>());
  result.value = FrozenTensor::freeze(std::move(flat));
  result.top1 = result.top5 = kNaN;
  result.samples = config_.batch_size;
  result.compute_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Gradient QuadraticCompute::gradient_in_parts(GradientRequest request, const GivePart& give) {
  const PartBegins begins = request.parts;
  Gradient whole = gradient(std::move(request));
  if (!begins || !whole.error.empty()) return whole;
  GradientParts parts(whole.step, begins, config_.dimension, give);
  parts.add(0, whole.value.read());
  whole.value = FrozenTensor::freeze(parts.finish());
  return whole;
}

Expected<Evaluation> QuadraticCompute::evaluate(const FrozenTensor& z,
                                                const FrozenTensor& /*buffers*/) {
  const Expected<void> valid = check_z(z);
  if (!valid) return valid.error();
  const double loss = half_sum(z, curvature_, optimum_, nullptr) + optimal_loss();
  return Evaluation{loss, kNaN, kNaN, 1};
}

Expected<void> QuadraticCompute::check_z(const FrozenTensor& z) const {
  if (z.numel() == config_.dimension && z.dtype() == at::kFloat && z.device().is_cpu()) return {};
  return bad_input("z has " + std::to_string(z.numel()) + " values, the quadratic loss needs " +
                   std::to_string(config_.dimension) + " float32 ones on the CPU");
}

void QuadraticCompute::add_noise(Step step, float* gradient) const {
  const auto rank_stream =
      mix_seed(mix_seed(config_.seed, kNoiseStream), static_cast<std::uint64_t>(config_.rank));
  const auto stream = mix_seed(rank_stream, static_cast<std::uint64_t>(step));
  const double half_width = config_.noise * std::sqrt(3.0);  // of a uniform with this deviation
  for (std::int64_t i = 0; i < config_.dimension; ++i)
    gradient[i] +=
        static_cast<float>(half_width * to_unit(mix_seed(stream, static_cast<std::uint64_t>(i))));
}

}  // namespace grapevine
