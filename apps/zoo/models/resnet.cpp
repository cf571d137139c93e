// Residual networks for large images (He et al. 2016, table 1): four stages of 64, 128, 256 and 512
// maps, with 1×1 convolutions as shortcuts where the shape changes (option B). resnet18 has blocks
// of two 3×3 convolutions, 11,689,512 parameters on 3 channels and 1,000 classes; resnet50 has
// bottlenecks of 1×1, 3×3 and 1×1, 25,557,032 parameters. As in most implementations since, the
// stride of a bottleneck is that of its 3×3 convolution; the paper's is that of the first 1×1.
//
// Images with a side below 64 pixels would be down to 2 pixels behind the paper's first layers:
// they get one 3×3 convolution without stride and pooling instead (11,173,962 and 23,520,842
// parameters on 3×32×32 samples and ten classes).
#include <algorithm>
#include <array>
#include <string>

#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/convolution.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kResnetSmallestSide = 8;  // three stages halve it
constexpr std::int64_t kResnetLargeSide = 64;    // from here on the paper's first layers
constexpr std::int64_t kFirstMaps = 64;
constexpr std::int64_t kWidening = 4;  // of the last convolution of a bottleneck

// A convolution and its batch-norm.
class Normed : public torch::nn::Module {
 public:
  Normed(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : conv_(register_module("conv", plain_convolution(in, out, kernel, stride))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(out))) {}

  at::Tensor forward(const at::Tensor& input) { return norm_(conv_(input)); }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
};

using NormedLayer = std::shared_ptr<Normed>;

class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(std::int64_t in, std::int64_t maps, std::int64_t stride, bool bottleneck) {
    const std::int64_t out = bottleneck ? kWidening * maps : maps;
    if (bottleneck) {
      add(in, maps, 1, 1);
      add(maps, maps, 3, stride);
      add(maps, out, 1, 1);
    } else {
      add(in, maps, 3, stride);
      add(maps, maps, 3, 1);
    }
    if (stride != 1 || in != out)
      shortcut_ = register_module("shortcut", std::make_shared<Normed>(in, out, 1, stride));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = layers_.front()->forward(input);
    for (std::size_t i = 1; i < layers_.size(); ++i) x = layers_[i]->forward(torch::relu(x));
    return torch::relu(x + (shortcut_ ? shortcut_->forward(input) : input));
  }

 private:
  void add(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    const std::string name = "layer" + std::to_string(layers_.size());
    layers_.push_back(register_module(name, std::make_shared<Normed>(in, out, kernel, stride)));
  }

  std::vector<NormedLayer> layers_;
  NormedLayer shortcut_;  // null: the input itself
};

struct ResNetPlan {
  std::array<int, 4> blocks{};  // of each stage
  bool bottleneck = false;
};

class LargeResNet : public torch::nn::Module {
 public:
  LargeResNet(const ImageShape& shape, std::int64_t classes, const ResNetPlan& plan)
      : large_(std::min(shape.height, shape.width) >= kResnetLargeSide),
        first_(register_module("first", std::make_shared<Normed>(shape.channels, kFirstMaps,
                                                                 large_ ? 7 : 3, large_ ? 2 : 1))) {
    std::int64_t in = kFirstMaps;
    for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage) {
      const std::int64_t maps = kFirstMaps << stage;
      for (int i = 0; i < plan.blocks[stage]; ++i) {
        const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
        const std::string name = "block" + std::to_string(blocks_.size());
        blocks_.push_back(register_module(
            name, std::make_shared<ResidualBlock>(in, maps, stride, plan.bottleneck)));
        in = plan.bottleneck ? kWidening * maps : maps;
      }
    }
    fc_ = register_module("fc", torch::nn::Linear(in, classes));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::relu(first_->forward(input));
    if (large_) x = torch::max_pool2d(x, 3, 2, 1);
    for (const auto& block : blocks_) x = block->forward(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  bool large_;
  NormedLayer first_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Linear fc_{nullptr};
};

Expected<ModelFactory> make_large_resnet(const std::string& name, const DataInfo& info,
                                         const ResNetPlan& plan) {
  const Expected<ImageShape> shape = image_shape(name, info, kResnetSmallestSide);
  if (!shape) return shape.error();
  return module_factory([shape = *shape, classes = info.classes, plan] {
    return std::make_shared<LargeResNet>(shape, classes, plan);
  });
}

}  // namespace

Expected<ModelFactory> make_resnet18(const DataInfo& info) {
  return make_large_resnet("resnet18", info, {{2, 2, 2, 2}, false});
}

Expected<ModelFactory> make_resnet50(const DataInfo& info) {
  return make_large_resnet("resnet50", info, {{3, 4, 6, 3}, true});
}

}  // namespace grapevine
