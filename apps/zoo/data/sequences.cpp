// sequences[:N]: made-up time series of different lengths, N for training (4,096) and N / 4 for
// testing. A sample runs again and again through the same four poses, each held for one or two
// steps, in noise. Its class is the order in which the poses follow each other, one of 3! = 6, and
// it begins at any of them: neither a single step, nor the values without their order, nor the
// length tells the class.
//
// Lengths are lognormal between 6 and 102 time steps, 1:17 with a long tail, as clips of video are;
// their mean is about 37. Samples lie in the order of their length. The same for every run: the
// run's seed does not enter.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "apps/zoo/data/images/pixels.hpp"
#include "apps/zoo/data/makers.hpp"
#include "apps/zoo/data/path_number.hpp"
#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kSequenceTrainSize = 4096;
constexpr std::int64_t kMostSequences = 1000000;
constexpr std::int64_t kShortest = 6;
constexpr std::int64_t kLongest = 102;
constexpr double kMedian = 32;
constexpr double kLogDeviation = 0.53;
constexpr double kPoseNoise = 1;
constexpr std::int64_t kChannels = 8;
constexpr std::int64_t kFeatures = kChannels + 1;  // the last says where the sample is
constexpr std::int64_t kPoses = 4;
constexpr std::array<std::array<std::int64_t, kPoses>, 6> kOrders{
    {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1}}};
constexpr std::uint64_t kSequenceTrainKey = 0x73657175656e0001;
constexpr std::uint64_t kSequenceTestKey = 0x73657175656e0002;

enum SequenceStream : std::uint64_t { for_length, for_poses, for_noise };

// Poses are Walsh functions over the channels: ±1, orthogonal to each other.
float pose_value(std::int64_t pose, std::int64_t channel) {
  std::uint64_t shared = static_cast<std::uint64_t>(pose + 1) & static_cast<std::uint64_t>(channel);
  int sign = 1;
  for (; shared != 0; shared &= shared - 1) sign = -sign;
  return static_cast<float>(sign);
}

std::vector<std::int64_t> draw_lengths(std::uint64_t key, std::int64_t count) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
  RandomStream random(mix_seed(key, for_length));
  for (std::int64_t& length : lengths) {
    const double drawn = kMedian * std::exp(kLogDeviation * random.normal());
    length = std::clamp(static_cast<std::int64_t>(std::lround(drawn)), kShortest, kLongest);
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

class Sequences final : public DataSet {
 public:
  explicit Sequences(std::int64_t train_size)
      : train_{kSequenceTrainKey, draw_lengths(kSequenceTrainKey, train_size)},
        test_{kSequenceTestKey,
              draw_lengths(kSequenceTestKey,
                           std::max<std::int64_t>(kOrders.size(), train_size / 4))} {
    info_.name = "sequences";
    info_.task = Task::classification;
    info_.sample_shape = {kTimeSteps, kFeatures};
    info_.classes = kOrders.size();
    info_.train_size = static_cast<std::int64_t>(train_.lengths.size());
    info_.test_size = static_cast<std::int64_t>(test_.lengths.size());
    info_.by_length = true;
  }

  const DataInfo& info() const override { return info_; }

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t /*augment_seed*/) const override {
    check_indices(info_, split, indices);
    const Samples& from = split == Split::train ? train_ : test_;
    std::int64_t longest = 0;
    for (const std::int64_t index : indices) longest = std::max(longest, from.lengths[index]);
    const auto size = static_cast<std::int64_t>(indices.size());
    Batch batch{at::zeros({size, longest, kFeatures}, at::kFloat), at::empty({size}, at::kLong)};
    auto* input = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      const std::uint64_t key = mix_seed(from.key, static_cast<std::uint64_t>(index));
      *target++ = write_sample(key, from.lengths[index], input);
      input += longest * kFeatures;
    }
    return batch;
  }

 private:
  struct Samples {
    std::uint64_t key;
    std::vector<std::int64_t> lengths;  // rising
  };

  // Writes `length` steps to `out`, returns the class.
  static std::int64_t write_sample(std::uint64_t key, std::int64_t length, float* out) {
    std::vector<float> noise(static_cast<std::size_t>(length * kChannels));
    fill_normal(mix_seed(key, for_noise), noise.data(), length * kChannels);
    RandomStream random(mix_seed(key, for_poses));
    const std::int64_t label = random.below(kOrders.size());
    std::int64_t place = random.below(kPoses);
    bool held = false;
    for (std::int64_t step = 0; step < length; ++step, out += kFeatures) {
      const std::int64_t pose = kOrders[label][place];
      for (std::int64_t c = 0; c < kChannels; ++c)
        out[c] = pose_value(pose, c) + static_cast<float>(kPoseNoise) * noise[step * kChannels + c];
      out[kChannels] = 1;
      const bool moves = held || random.chance(0.5);
      if (moves) place = (place + 1) % kPoses;
      held = !moves;
    }
    return label;
  }

  // Constant after construction.
  Samples train_;
  Samples test_;
  DataInfo info_;
};

}  // namespace

MadeDataSet make_sequences(const std::string& path, const DataOptions& /*options*/) {
  auto train_size =
      path_number("sequences", path, kSequenceTrainSize, kOrders.size(), kMostSequences);
  if (!train_size) return train_size.error();
  return MadeDataSet(std::make_shared<Sequences>(*train_size));
}

}  // namespace grapevine
