#include "apps/bench/bench_sparse.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "algorithms/kernels/sparse_vector.hpp"
#include "apps/train/quantiles.hpp"

namespace grapevine {
namespace {

struct Operation {
  const char* name;
  double bytes;  // read, of what is given
  std::function<void()> run;
  std::vector<double> seconds;
};

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

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

void print_json(std::ostream& out, const Operation& op, const Quantiles& times, std::int64_t bytes,
                double density, std::int64_t k) {
  nlohmann::ordered_json line;
  line["kind"] = "sparse";
  line["transport"] = "inproc";
  line["ranks"] = 1;
  line["operation"] = op.name;
  line["bytes"] = bytes;
  line["density"] = density;
  line["entries"] = k;
  line["median_s"] = times.median;
  line["p10_s"] = times.p10;
  line["p99_s"] = times.p99;
  line["bandwidth_gbps"] = op.bytes / times.median / 1e9;
  out << line.dump() << std::endl;
}

void print_line(std::ostream& out, const Operation& op, const Quantiles& times, std::int64_t bytes,
                double density) {
  char text[160];
  std::snprintf(text, sizeof text, "%12lld  %8g  %-14s  %10.3f  %10.3f  %10.3f  %8.3f\n",
                static_cast<long long>(bytes), density, op.name, times.median * 1e3,
                times.p10 * 1e3, times.p99 * 1e3, op.bytes / times.median / 1e9);
  out << text << std::flush;
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
  std::vector<Operation> operations = {
      {"select", dense_bytes, [&] { select_top_k(x, k); }, {}},
      {"select-sampled", dense_bytes, [&] { select_about_k(x, k); }, {}},
      {"torch-topk", dense_bytes, [&] { at::topk(magnitudes, k, 0, true, false); }, {}},
      {"merge", list_bytes, [&] { keep_top_k(merge(a, b), k, nullptr); }, {}}};
  if (auto same = compare(a, std::get<0>(at::topk(magnitudes, k, 0, true, false))); !same)
    return same;
  for (std::int64_t i = 0; i < options.iterations; ++i)
    for (Operation& op : operations) op.seconds.push_back(seconds_of(op.run));
  for (Operation& op : operations) {
    const Quantiles times = quantiles_of(std::move(op.seconds));
    if (options.json)
      print_json(out, op, times, bytes, density, k);
    else
      print_line(out, op, times, bytes, density);
  }
  return {};
}

}  // namespace

Expected<void> run_sparse_bench(const SparseBenchOptions& options, std::ostream& out) {
  if (!options.json)
    out << "sparse, " << options.iterations << " iterations; GB/s: bytes read over the median time"
        << "\n       bytes   density  operation       median, ms     p10, ms     p99, ms      "
           "GB/s\n";
  for (const std::int64_t bytes : options.bytes)
    for (const double density : options.densities)
      if (auto measured = measure(options, bytes, density, out); !measured) return measured;
  return {};
}

}  // namespace grapevine
