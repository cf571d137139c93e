// LeNet-5 (LeCun et al. 1998, fig. 2) with rectifiers and max-pooling, padded so that 28×28 samples
// give the paper's 16 maps of 5×5; 61,706 parameters there.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kLenetSmallestSide = 12;  // leaves one value per map

// A 5×5 convolution padded by 2, pooling by 2, a 5×5 convolution, pooling by 2.
std::int64_t lenet_side_after(std::int64_t side) { return (side / 2 - 4) / 2; }

class LeNet : public torch::nn::Module {
 public:
  LeNet(const ImageShape& shape, std::int64_t classes)
      : conv1_(register_module(
            "conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.channels, 6, 5).padding(2)))),
        conv2_(register_module("conv2", torch::nn::Conv2d(6, 16, 5))),
        fc1_(register_module(
            "fc1", torch::nn::Linear(
                       16 * lenet_side_after(shape.height) * lenet_side_after(shape.width), 120))),
        fc2_(register_module("fc2", torch::nn::Linear(120, 84))),
        fc3_(register_module("fc3", torch::nn::Linear(84, classes))) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::max_pool2d(torch::relu(conv1_(input)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    return fc3_(torch::relu(fc2_(torch::relu(fc1_(x.flatten(1))))));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

Expected<ModelFactory> make_lenet(const DataInfo& info) {
  const Expected<ImageShape> shape = image_shape("lenet", info, kLenetSmallestSide);
  if (!shape) return shape.error();
  return module_factory(
      [shape = *shape, classes = info.classes] { return std::make_shared<LeNet>(shape, classes); });
}

}  // namespace grapevine
