// noise[:SIDE]: normal noise in the shape of ImageNet, 3×SIDE×SIDE (224) in 1,000 classes. There is
// nothing to learn in it: it measures throughput, as a sample costs one copy of its bytes.
//
// A sample is a window of one pool of noise; where it begins, and the label, are a function of the
// split and the index.
#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/path_number.hpp"
#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kNoiseSide = 224;
constexpr std::int64_t kMaxSide = 1024;
constexpr std::int64_t kNoiseClasses = 1000;
constexpr std::int64_t kNoiseTrainSize = 32768;
constexpr std::int64_t kNoiseTestSize = 256;
constexpr std::int64_t kOffsets = std::int64_t{1} << 16;  // windows that differ
constexpr std::uint64_t kPurpose = 0x6e6f697365;

class Noise final : public DataSet {
 public:
  explicit Noise(std::int64_t side)
      : size_(3 * side * side), pool_(static_cast<std::size_t>(size_ + kOffsets)) {
    fill_normal(kPurpose, pool_.data(), size_ + kOffsets);
    info_.name = "noise";
    info_.sample_shape = {3, side, side};
    info_.classes = kNoiseClasses;
    info_.train_size = kNoiseTrainSize;
    info_.test_size = kNoiseTestSize;
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    Batch batch = empty_batch(info_, static_cast<std::int64_t>(indices.size()));
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    const std::uint64_t of_split = kPurpose + (split == Split::train ? 1 : 2);
    for (const std::int64_t index : indices) {
      const std::uint64_t chance = mix_seed(of_split, static_cast<std::uint64_t>(index));
      std::memcpy(input, pool_.data() + chance % kOffsets,
                  static_cast<std::size_t>(size_) * sizeof(float));
      *target++ = static_cast<std::int64_t>((chance >> 32) % kNoiseClasses);
      input += size_;
    }
    return batch;
  }

 private:
  // Constant after construction.
  std::int64_t size_;  // floats of a sample
  std::vector<float> pool_;
  DataInfo info_;
};

}  // namespace

MadeDataSet make_noise(const std::string& path, const DataOptions& /*options*/) {
  auto side = path_number("noise", path, kNoiseSide, 8, kMaxSide);
  if (!side) return side.error();
  return MadeDataSet(std::make_shared<Noise>(*side));
}

}  // namespace grapevine
