// hyperplane[:D]: linear regression. x ~ N(0, I) in D dimensions, y = a·x + 0.1 e with e ~ N(0, 1)
// and a normal vector a scaled to |a|² ≈ 1: y has variance about 1 and the best mean squared error
// is 0.01. SGD on the mean squared error of B samples diverges for learning rates above about B /
// (B + D).
//
// Nothing is stored but a: sample i of a split is a pure function of (seed, split, i), so 32,768
// samples of 8,192 floats (1 GiB) cost 32 KiB.
#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <vector>

#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/path_number.hpp"
#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kDimensions = 8192;
constexpr std::int64_t kMaxDimensions = std::int64_t{1} << 24;
constexpr std::int64_t kHyperplaneTrainSize = 32768;
constexpr std::int64_t kHyperplaneTestSize = 4096;
constexpr double kTargetNoise = 0.1;

enum HyperplaneStream : std::uint64_t {
  for_coefficients,
  train_input,
  test_input,
  train_noise,
  test_noise
};

class Hyperplane final : public DataSet {
 public:
  Hyperplane(std::int64_t dimensions, std::uint64_t seed)
      : seed_(mix_seed(seed, 0x68797065)), coefficients_(dimensions) {
    fill_normal(mix_seed(seed_, for_coefficients), coefficients_.data(), dimensions);
    const float scale = 1.0F / std::sqrt(static_cast<float>(dimensions));
    for (float& a : coefficients_) a *= scale;
    info_.name = "hyperplane";
    info_.task = Task::regression;
    info_.sample_shape = {dimensions};
    info_.classes = 1;
    info_.train_size = kHyperplaneTrainSize;
    info_.test_size = kHyperplaneTestSize;
    info_.slow = true;  // a linear model reads each input no more often than it is drawn
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    Batch batch = empty_batch(info_, static_cast<std::int64_t>(indices.size()));
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<float>();
    for (const std::int64_t index : indices) {
      *target++ = sample(split == Split::train, static_cast<std::uint64_t>(index), input);
      input += coefficients_.size();
    }
    return batch;
  }

 private:
  // Writes x to `input`, returns y.
  float sample(bool train, std::uint64_t index, float* input) const {
    const std::uint64_t inputs = mix_seed(seed_, train ? train_input : test_input);
    fill_normal(mix_seed(inputs, index), input, static_cast<std::int64_t>(coefficients_.size()));
    // Four partial sums: one alone would wait for each addition.
    std::array<double, 4> sums{};
    for (std::size_t d = 0; d < coefficients_.size(); ++d)
      sums[d % 4] += static_cast<double>(coefficients_[d]) * input[d];
    const double y = sums[0] + sums[1] + sums[2] + sums[3];
    RandomStream noise(mix_seed(mix_seed(seed_, train ? train_noise : test_noise), index));
    return static_cast<float>(y + kTargetNoise * noise.normal());
  }

  // Constant after construction.
  std::uint64_t seed_;
  std::vector<float> coefficients_;
  DataInfo info_;
};

}  // namespace

MadeDataSet make_hyperplane(const std::string& path, const DataOptions& options) {
  auto dimensions = path_number("hyperplane", path, kDimensions, 1, kMaxDimensions);
  if (!dimensions) return dimensions.error();
  return MadeDataSet(std::make_shared<Hyperplane>(*dimensions, options.seed));
}

}  // namespace grapevine
