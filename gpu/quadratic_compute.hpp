// QuadraticCompute: a loss whose optimum is known, to study an algorithm without a model.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/compute.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct QuadraticConfig {
  std::int64_t dimension = 1;  // d
  Rank rank = 0;
  std::int64_t ranks = 1;
  std::int64_t batch_size = 1;  // what Gradient::samples says; the loss does not depend on it
  std::uint64_t seed = 0;       // the same on all ranks
  double curvature_min = 1;     // a_i, spaced geometrically; > 0
  double curvature_max = 1;
  double heterogeneity =
      0;             // distance of a rank's optimum from the global one, per coordinate (rms)
  double noise = 0;  // standard deviation of the gradient's noise, per coordinate
};

// Rank r minimises f_r(z) = 1/2 Σ a_i (z_i − c_ri)², with c_ri = c_i + h · s_r · v_i: c_i is seeded
// in [−1, 1), v_i is a seeded sign, and the scalars s_r have mean 0 and mean square 1 over the
// ranks. So c minimises the global objective f = 1/n Σ_r f_r exactly, and f(z) = 1/2 Σ a_i ((z_i −
// c_i)² + h²) where there are at least two ranks. The gradient is a ⊙ (z − c_r) + noise, the noise
// uniform and seeded by (seed, rank, step, i).
//
// a, c and v repeat with a prime period (kPeriod), so that a gradient is one pass over z and its
// result with the tables in cache, at any d, and slices of equal length differ.
class QuadraticCompute final : public Compute {
 public:
  static constexpr std::int64_t kPeriod = 4093;

  // Errors (bad_input): a size < 1, a rank outside the ranks, a curvature <= 0, min > max, a
  // negative or non-finite heterogeneity or noise.
  static Expected<std::unique_ptr<QuadraticCompute>> make(const QuadraticConfig& config);

  at::Tensor optimum() const;      // c, [d] float32
  double optimal_loss() const;     // f(c)
  at::Tensor own_optimum() const;  // c_r, [d] float32

  std::int64_t dimension() const override { return config_.dimension; }
  FrozenTensor initial_parameters() const override;  // zeros
  FrozenTensor initial_buffers() const override { return {}; }

  // loss is f_r(z); top1 and top5 are NaN. Errors: z is not [d] float32 on the CPU; the loss is not
  // finite.
  Gradient gradient(GradientRequest request) override;
  // Parts are copies.
  Gradient gradient_in_parts(GradientRequest request, const GivePart& give) override;
  // loss is f(z), the global objective; samples is 1; top1 and top5 are NaN. Errors as above.
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override;

 private:
  explicit QuadraticCompute(const QuadraticConfig& config);
  Expected<void> check_z(const FrozenTensor& z) const;
  void add_noise(Step step, float* gradient) const;

  QuadraticConfig config_;
  // Of one period, or of d elements where d is smaller.
  std::vector<float> curvature_;
  std::vector<float> optimum_;
  std::vector<float> own_optimum_;
};

}  // namespace grapevine
