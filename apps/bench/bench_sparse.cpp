#include "apps/bench/bench_sparse.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "algorithms/kernels/sparse_vector.hpp"
#include "apps/bench/bench_operations.hpp"

namespace grapevine {
namespace {

at::Tensor gradient_like(std::int64_t elements, std::uint64_t seed) {
  return at::randn({elements}, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kFloat));
}

// Both have the same magnitudes, each as often: ties may be other entries.
Expected<void> compare(const SparseVector& mine, const at::Tensor& theirs) {
  at::Tensor values = at::empty({mine.size()}, at::kFloat);
  std::copy(mine.values.begin(), mine.values.end(), values.data_ptr<float>());
  if (at::equal(std::get<0>(values.abs().sort()), std::get<0>(theirs.sort()))) return {};
  return Error{Errc::failed, "bench sparse: the selection differs from torch::topk's"};
}

Expected<void> measure(const SparseBenchOptions& options, std::int64_t bytes, double density,
                       std::ostream& out) {
  const std::int64_t d = bytes / 4;
  const std::int64_t k =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(density * static_cast<double>(d)));
  const at::Tensor x = gradient_like(d, 1);
  const at::Tensor magnitudes = x.abs();
  const SparseVector a = select_top_k(x, k), b = select_top_k(gradient_like(d, 2), k);
  const auto dense_bytes = static_cast<double>(4 * d), list_bytes = static_cast<double>(16 * k);
  const auto done = [](auto f) {
    return [f] {
      f();
      return Expected<void>();
    };
  };
  const std::vector<BenchOperation> operations = {
      {"select", dense_bytes, done([&] { select_top_k(x, k); })},
      {"select-sampled", dense_bytes, done([&] { select_about_k(x, k); })},
      {"torch-topk", dense_bytes, done([&] { at::topk(magnitudes, k, 0, true, false); })},
      {"merge", list_bytes, done([&] { keep_top_k(merge(a, b), k, nullptr); })}};
  if (auto same = compare(a, std::get<0>(at::topk(magnitudes, k, 0, true, false))); !same)
    return same;
  auto seconds = time_operations(operations, options.iterations);
  if (!seconds) return seconds.error();
  const nlohmann::ordered_json more = {{"density", density}, {"entries", k}};
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (options.json)
      print_operation_json(out, "sparse", bytes, operations[i], std::move((*seconds)[i]), more);
    else
      print_operation_line(out, fmt::format("{} x {:g}", bytes, density), operations[i],
                           std::move((*seconds)[i]));
  return {};
}

}  // namespace

Expected<void> run_sparse_bench(const SparseBenchOptions& options, std::ostream& out) {
  if (!options.json)
    print_operations_title(out, "sparse", options.iterations, "bytes read",
                           "dense bytes x density");
  for (const std::int64_t bytes : options.bytes)
    for (const double density : options.densities)
      if (auto measured = measure(options, bytes, density, out); !measured) return measured;
  return {};
}

}  // namespace grapevine
