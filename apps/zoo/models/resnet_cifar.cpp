// Residual networks for small images (He et al. 2016, section 4.2): 6n + 2 layers, three stages of
// n blocks with 16, 32 and 64 maps, and shortcuts without parameters (option A). resnet20 has
// 269,722 parameters on 3×32×32 samples and ten classes.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/convolution.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kResnetCifarSmallestSide = 4;  // two stages halve it

class Block : public torch::nn::Module {
 public:
  Block(std::int64_t in, std::int64_t out, std::int64_t stride)
      : stride_(stride),
        added_maps_(out - in),
        conv1_(register_module("conv1", plain_convolution(in, out, 3, stride))),
        norm1_(register_module("norm1", torch::nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", plain_convolution(out, out, 3, 1))),
        norm2_(register_module("norm2", torch::nn::BatchNorm2d(out))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor residual = norm2_(conv2_(torch::relu(norm1_(conv1_(input)))));
    return torch::relu(residual + shortcut(input));
  }

 private:
  // Every stride-th pixel, and maps of zeros where the block has more of them than its input.
  at::Tensor shortcut(const at::Tensor& input) const {
    if (stride_ == 1 && added_maps_ == 0) return input;
    const at::Tensor sampled =
        input.slice(2, 0, c10::nullopt, stride_).slice(3, 0, c10::nullopt, stride_);
    return torch::constant_pad_nd(sampled,
                                  {0, 0, 0, 0, added_maps_ / 2, added_maps_ - added_maps_ / 2});
  }

  std::int64_t stride_;
  std::int64_t added_maps_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d norm2_;
};

class ResNet : public torch::nn::Module {
 public:
  ResNet(std::int64_t channels, std::int64_t classes, int blocks_per_stage)
      : conv_(register_module("conv", plain_convolution(channels, 16, 3, 1))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(16))),
        fc_(register_module("fc", torch::nn::Linear(64, classes))) {
    std::int64_t in = 16;
    for (const std::int64_t maps : {16, 32, 64}) {
      for (int i = 0; i < blocks_per_stage; ++i) {
        const std::string name = "block" + std::to_string(blocks_.size());
        blocks_.push_back(
            register_module(name, std::make_shared<Block>(in, maps, in == maps ? 1 : 2)));
        in = maps;
      }
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::relu(norm_(conv_(input)));
    for (const auto& block : blocks_) x = block->forward(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::Linear fc_;
};

Expected<ModelFactory> make_resnet(const std::string& name, const DataInfo& info,
                                   int blocks_per_stage) {
  const Expected<ImageShape> shape = image_shape(name, info, kResnetCifarSmallestSide);
  if (!shape) return shape.error();
  return module_factory([channels = shape->channels, classes = info.classes, blocks_per_stage] {
    return std::make_shared<ResNet>(channels, classes, blocks_per_stage);
  });
}

}  // namespace

Expected<ModelFactory> make_resnet20(const DataInfo& info) {
  return make_resnet("resnet20", info, 3);
}

Expected<ModelFactory> make_resnet32(const DataInfo& info) {
  return make_resnet("resnet32", info, 5);
}

}  // namespace grapevine
