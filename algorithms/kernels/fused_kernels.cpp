#include "algorithms/kernels/fused_kernels.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "algorithms/kernels/find_operator.hpp"
#include "algorithms/kernels/sgd_loop.hpp"
#include "algorithms/kernels/sparse_vector.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine::kernels {
namespace {

void check_flat(const at::Tensor& t, at::ScalarType dtype, const char* name) {
  GRAPEVINE_CHECK(t.defined() && t.dim() == 1 && t.scalar_type() == dtype && t.is_contiguous(),
                  name, " must be a flat contiguous tensor of ", at::toString(dtype));
}

void check_like(const at::Tensor& t, const at::Tensor& x, const char* name) {
  check_flat(t, at::kFloat, name);
  GRAPEVINE_CHECK(t.numel() == x.numel(), name, " has ", t.numel(), " elements, x ", x.numel());
}

void check_entries(const Entries& entries) {
  check_flat(entries.indices, at::kInt, "indices");
  check_flat(entries.values, at::kFloat, "values");
  GRAPEVINE_CHECK(entries.indices.numel() == entries.values.numel(), entries.indices.numel(),
                  " indices, ", entries.values.numel(), " values");
}

// ---- push-sum ----

constexpr std::int64_t kRoundGrain = 1 << 16;  // elements of a task: repays waking a thread
// Elements of all six vectors that stay in a core's cache from one loop to the next.
constexpr std::int64_t kCached = 2048;

// One pass over memory: the loops of a piece find it in the cache.
void push_sum_step_cpu(at::Tensor& out, at::Tensor& z, const at::Tensor& x, const at::Tensor& share,
                       at::Tensor& velocity, const at::Tensor& gradient, double lr, double momentum,
                       double weight_decay, bool nesterov, double scale, double w) {
  const SgdLoop loop({lr, momentum, weight_decay, nesterov, scale});
  const auto weight = static_cast<float>(w);
  float* const to = out.data_ptr<float>();
  const float* const from = x.data_ptr<float>();
  const float* const added = share.defined() ? share.data_ptr<float>() : nullptr;
  float* const v = momentum != 0 ? velocity.data_ptr<float>() : nullptr;
  const float* const g = gradient.data_ptr<float>();
  float* const debiased = z.defined() ? z.data_ptr<float>() : nullptr;
  at::parallel_for(0, out.numel(), kRoundGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += kCached) {
      const std::int64_t end = std::min(last, begin + kCached);
      if (added != nullptr)
        for (std::int64_t i = begin; i < end; ++i) to[i] = from[i] + added[i];
      loop.run(to + begin, (added != nullptr ? to : from) + begin, v == nullptr ? v : v + begin,
               g + begin, end - begin);
      if (debiased != nullptr)
        for (std::int64_t i = begin; i < end; ++i) debiased[i] = to[i] / weight;
    }
  });
}

void push_sum_fold_cpu(at::Tensor& out, at::Tensor& z, const at::Tensor& x, const at::Tensor& share,
                       double scale_of_all, double w) {
  const auto scale = static_cast<float>(scale_of_all), weight = static_cast<float>(w);
  float* const to = out.data_ptr<float>();
  const float* const from = x.data_ptr<float>();
  const float* const added = share.data_ptr<float>();
  float* const debiased = z.defined() ? z.data_ptr<float>() : nullptr;
  at::parallel_for(0, out.numel(), kRoundGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += kCached) {
      const std::int64_t end = std::min(last, begin + kCached);
      for (std::int64_t i = begin; i < end; ++i) to[i] = (from[i] + added[i]) * scale;
      if (debiased != nullptr)
        for (std::int64_t i = begin; i < end; ++i) debiased[i] = to[i] / weight;
    }
  });
}

void push_sum_fold_aten(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, double scale_of_all, double w) {
  fold_into(out, x, share);
  if (scale_of_all != 1) scale(out, scale_of_all);
  if (z.defined()) debias(z, out, w);
}

void push_sum_step_aten(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, at::Tensor& velocity, const at::Tensor& gradient,
                        double lr, double momentum, double weight_decay, bool nesterov,
                        double scale, double w) {
  const SgdStep step{lr, momentum, weight_decay, nesterov, scale};
  if (share.defined()) fold_into(out, x, share);
  sgd_step_into(out, share.defined() ? out : x, velocity, gradient, step);
  if (z.defined()) debias(z, out, w);
}

// ---- sparse ----

using EntriesAndCount = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor count_of(std::int64_t n) { return at::full({1}, n, at::kInt); }

EntriesAndCount to_tensors(const SparseVector& x) {
  at::Tensor indices = at::empty({x.size()}, at::kInt), values = at::empty({x.size()}, at::kFloat);
  if (x.size() > 0) {
    std::memcpy(indices.data_ptr(), x.indices.data(), indices.nbytes());
    std::memcpy(values.data_ptr(), x.values.data(), values.nbytes());
  }
  return {indices, values, count_of(x.size())};
}

SparseVector to_vector(const at::Tensor& indices, const at::Tensor& values) {
  const auto* const from = static_cast<const std::uint32_t*>(indices.data_ptr());
  const auto* const value = values.data_ptr<float>();
  return {{from, from + indices.numel()}, {value, value + values.numel()}};
}

EntriesAndCount top_k_cpu(at::Tensor& x, std::int64_t k, bool take) {
  const SparseVector chosen = select_top_k(x, k);
  if (take) add_entries(x, chosen, -1);
  return to_tensors(chosen);
}

void scatter_add_cpu(at::Tensor& x, const at::Tensor& indices, const at::Tensor& values,
                     double factor) {
  add_entries(x, to_vector(indices, values), static_cast<float>(factor));
}

// ---- int8 ----

constexpr std::int64_t kBlocksPerTask = 64;
constexpr float kMost = 127;

// Even in [0, 1) with 24 bits, a function of the seed and the element alone.
float uniform(std::uint64_t seed, std::int64_t i) {
  return static_cast<float>(mix_seed(seed, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24F;
}

// Returns the block's scale; NaN where the block is not finite.
float pack_block(const float* x, std::uint8_t* out, std::int64_t begin, std::int64_t end,
                 std::uint64_t seed) {
  float most = 0;
  bool finite = true;
  for (std::int64_t i = begin; i < end; ++i) {
    most = std::max(most, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float scale = most / kMost;
  const float inverse = 1 / scale;  // infinite where all is nearly zero: nothing is sent
  for (std::int64_t i = begin; i < end; ++i) {
    float level = 0;
    if (finite && std::isfinite(inverse)) level = std::floor(x[i] * inverse + uniform(seed, i));
    const auto byte = static_cast<std::int8_t>(std::clamp(level, -kMost, kMost));
    out[i] = static_cast<std::uint8_t>(byte);
  }
  return finite ? scale : std::numeric_limits<float>::quiet_NaN();
}

// The seed travels as the int64 of the same bits: operators know no unsigned integers.
std::tuple<at::Tensor, at::Tensor> int8_pack_cpu(const at::Tensor& x, std::int64_t seed) {
  const std::int64_t d = x.numel();
  at::Tensor values = at::empty({d}, at::kByte), scales = at::empty({int8_blocks(d)}, at::kFloat);
  const float* const from = x.data_ptr<float>();
  auto* const to = values.data_ptr<std::uint8_t>();
  auto* const scale = scales.data_ptr<float>();
  at::parallel_for(0, int8_blocks(d), kBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      scale[b] = pack_block(from, to, b * kInt8Block, std::min(d, (b + 1) * kInt8Block),
                            static_cast<std::uint64_t>(seed));
  });
  return {values, scales};
}

void int8_fold_cpu(at::Tensor& x, const at::Tensor& values, const at::Tensor& scales,
                   double factor_of_all) {
  const std::int64_t d = x.numel();
  const auto factor = static_cast<float>(factor_of_all);
  const auto* const level = values.data_ptr<std::uint8_t>();
  const auto* const scale = scales.data_ptr<float>();
  float* const to = x.data_ptr<float>();
  at::parallel_for(0, int8_blocks(d), kBlocksPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      for (std::int64_t i = b * kInt8Block; i < std::min(d, (b + 1) * kInt8Block); ++i)
        to[i] += factor * (static_cast<float>(static_cast<std::int8_t>(level[i])) * scale[b]);
  });
}

// ---- 16 bits ----

constexpr double kLargestHalf = 65504;

Entries trimmed(const EntriesAndCount& found) {
  const auto& [indices, values, count] = found;
  const std::int64_t n = count.item<std::int32_t>() & std::int64_t{0xffffffff};
  return {indices.narrow(0, 0, n), values.narrow(0, 0, n)};
}

}  // namespace

void push_sum_step_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, at::Tensor& velocity, const at::Tensor& gradient,
                        const SgdStep& step, double w) {
  check_flat(x, at::kFloat, "x");
  check_like(out, x, "out");
  check_like(gradient, x, "gradient");
  if (step.momentum != 0) check_like(velocity, x, "velocity");
  if (share.defined()) check_like(share, x, "share");
  if (z.defined()) check_like(z, x, "z");
  GRAPEVINE_CHECK(w > 0, "push-sum weight is ", w);
  static const auto op = find_operator("grapevine::push_sum_step", push_sum_step_aten);
  op.call(out, z, x, share, velocity, gradient, step.lr, step.momentum, step.weight_decay,
          step.nesterov, step.scale, w);
}

void push_sum_fold_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, double scale, double w) {
  check_flat(x, at::kFloat, "x");
  check_like(out, x, "out");
  check_like(share, x, "share");
  if (z.defined()) check_like(z, x, "z");
  GRAPEVINE_CHECK(w > 0, "push-sum weight is ", w);
  static const auto op = find_operator("grapevine::push_sum_fold", push_sum_fold_aten);
  op.call(out, z, x, share, scale, w);
}

Entries take_top_k(at::Tensor& x, std::int64_t k, bool take) {
  check_flat(x, at::kFloat, "x");
  GRAPEVINE_CHECK(k >= 0, "the largest ", k);
  static const auto op = find_operator("grapevine::top_k", top_k_cpu);
  return trimmed(op.call(x, k, take));
}

void scatter_add(at::Tensor& x, const Entries& entries, double factor) {
  check_flat(x, at::kFloat, "x");
  check_entries(entries);
  static const auto op = find_operator("grapevine::scatter_add", scatter_add_cpu);
  op.call(x, entries.indices, entries.values, factor);
}

Levels int8_pack(const at::Tensor& x, std::uint64_t seed) {
  check_flat(x, at::kFloat, "x");
  static const auto op = find_operator("grapevine::int8_pack", int8_pack_cpu);
  auto [values, scales] = op.call(x, static_cast<std::int64_t>(seed));
  return {values, scales};
}

void int8_fold(at::Tensor& x, const Levels& levels, double factor) {
  check_flat(x, at::kFloat, "x");
  check_flat(levels.values, at::kByte, "values");
  check_flat(levels.scales, at::kFloat, "scales");
  GRAPEVINE_CHECK(
      levels.values.numel() == x.numel() && levels.scales.numel() == int8_blocks(x.numel()),
      levels.values.numel(), " levels, ", levels.scales.numel(), " scales for ", x.numel(),
      " numbers");
  static const auto op = find_operator("grapevine::int8_fold", int8_fold_cpu);
  op.call(x, levels.values, levels.scales, factor);
}

at::Tensor half_pack(const at::Tensor& x, at::ScalarType dtype) {
  check_flat(x, at::kFloat, "x");
  GRAPEVINE_CHECK(dtype == at::kHalf || dtype == at::kBFloat16, "16 bits in ", at::toString(dtype));
  if (dtype != at::kHalf) return x.to(dtype);
  // On a device the host would wait to learn whether any finite value became infinite.
  if (!x.is_cpu()) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const at::Tensor infinite = x.eq(kInfinity).logical_or_(x.eq(-kInfinity));
    return at::where(infinite, x, x.clamp(-kLargestHalf, kLargestHalf)).to(dtype);
  }
  at::Tensor values = x.to(dtype);
  const at::Tensor beyond = values.isinf().logical_and_(x.isfinite());
  if (!beyond.any().item<bool>()) return values;
  return at::where(beyond, x.clamp(-kLargestHalf, kLargestHalf), x).to(dtype);
}

void half_fold(at::Tensor& x, const at::Tensor& values, double factor) {
  check_flat(x, at::kFloat, "x");
  check_flat(values, values.scalar_type() == at::kHalf ? at::kHalf : at::kBFloat16, "values");
  GRAPEVINE_CHECK(values.numel() == x.numel(), values.numel(), " values for ", x.numel());
  x.add_(values, factor);
}

TORCH_LIBRARY_FRAGMENT(grapevine, library) {
  library.def(
      "push_sum_step(Tensor(a!) out, Tensor(b!) z, Tensor x, Tensor share, Tensor(c!) velocity, "
      "Tensor gradient, float lr, float momentum, float weight_decay, bool nesterov, float scale, "
      "float w) -> ()");
  library.def(
      "push_sum_fold(Tensor(a!) out, Tensor(b!) z, Tensor x, Tensor share, float scale, float w) "
      "-> "
      "()");
  library.def("top_k(Tensor(a!) x, int k, bool take) -> (Tensor, Tensor, Tensor)");
  library.def("scatter_add(Tensor(a!) x, Tensor indices, Tensor values, float factor) -> ()");
  library.def("int8_pack(Tensor x, int seed) -> (Tensor, Tensor)");
  library.def("int8_fold(Tensor(a!) x, Tensor values, Tensor scales, float factor) -> ()");
}

TORCH_LIBRARY_IMPL(grapevine, CPU, library) {
  library.impl("push_sum_step", push_sum_step_cpu);
  library.impl("push_sum_fold", push_sum_fold_cpu);
  library.impl("top_k", top_k_cpu);
  library.impl("scatter_add", scatter_add_cpu);
  library.impl("int8_pack", int8_pack_cpu);
  library.impl("int8_fold", int8_fold_cpu);
}

TORCH_LIBRARY_IMPL(grapevine, CompositeExplicitAutograd, library) {
  library.impl("push_sum_step", push_sum_step_aten);
  library.impl("push_sum_fold", push_sum_fold_aten);
}

}  // namespace grapevine::kernels
