// VGG with 16 layers (Simonyan & Zisserman 2015, configuration D), with batch-norm behind each
// convolution, without which it hardly starts to learn. Images of at least 224 × 224 get the
// paper's three fully connected layers, with dropout: 138,365,992 parameters on 3 channels and
// 1,000 classes. Smaller ones get the usual single layer on the mean over what is left of the
// image: 14,728,266 parameters on 3×32×32 samples and ten classes. Pooling rounds sides up.
#include <algorithm>
#include <array>
#include <string>

#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/dropout.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kVggSmallestSide = 4;
constexpr std::int64_t kVggLargeSide = 224;
constexpr std::int64_t kLastSide = 7;  // of the maps that the paper's classifier sees
constexpr std::int64_t kLastMaps = 512;
constexpr std::int64_t kVggHidden = 4096;
constexpr double kVggDropout = 0.5;

struct VggStage {
  std::int64_t maps;
  int convolutions;
};
constexpr std::array<VggStage, 5> kStages{{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}};

class Vgg16 : public torch::nn::Module {
 public:
  Vgg16(const ImageShape& shape, std::int64_t classes)
      : large_(std::min(shape.height, shape.width) >= kVggLargeSide) {
    std::int64_t in = shape.channels;
    for (const VggStage& stage : kStages) {
      for (int i = 0; i < stage.convolutions; ++i) {
        const std::string number = std::to_string(convolutions_.size());
        convolutions_.push_back(register_module(
            "conv" + number,
            torch::nn::Conv2d(torch::nn::Conv2dOptions(in, stage.maps, 3).padding(1))));
        norms_.push_back(register_module("norm" + number, torch::nn::BatchNorm2d(stage.maps)));
        in = stage.maps;
      }
    }
    if (large_) {
      fc1_ =
          register_module("fc1", torch::nn::Linear(kLastMaps * kLastSide * kLastSide, kVggHidden));
      fc2_ = register_module("fc2", torch::nn::Linear(kVggHidden, kVggHidden));
    }
    fc3_ = register_module("fc3", torch::nn::Linear(large_ ? kVggHidden : kLastMaps, classes));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input;
    std::size_t layer = 0;
    for (const VggStage& stage : kStages) {
      for (int i = 0; i < stage.convolutions; ++i, ++layer)
        x = torch::relu(norms_[layer](convolutions_[layer](x)));
      x = torch::max_pool2d(x, 2, 2, 0, 1, /*ceil_mode=*/true);
    }
    if (!large_) return fc3_(x.mean({2, 3}));
    x = torch::adaptive_avg_pool2d(x, {kLastSide, kLastSide}).flatten(1);
    x = seeded_dropout(torch::relu(fc1_(x)), kVggDropout, is_training());
    x = seeded_dropout(torch::relu(fc2_(x)), kVggDropout, is_training());
    return fc3_(x);
  }

 private:
  bool large_;
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr}, fc3_{nullptr};
};

}  // namespace

Expected<ModelFactory> make_vgg16(const DataInfo& info) {
  const Expected<ImageShape> shape = image_shape("vgg16", info, kVggSmallestSide);
  if (!shape) return shape.error();
  return module_factory(
      [shape = *shape, classes = info.classes] { return std::make_shared<Vgg16>(shape, classes); });
}

}  // namespace grapevine
