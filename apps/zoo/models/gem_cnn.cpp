// The convolutional network of gradient energy matching (Hermans & Louppe 2018): 163,790 parameters
// on 1×28×28 samples and ten classes.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/dropout.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr double kGemDropout = 0.5;
constexpr std::int64_t kGemSmallestSide = 16;  // leaves one value per map

// Twice: a 5×5 convolution without padding, pooling by 2.
std::int64_t gem_side_after(std::int64_t side) { return ((side - 4) / 2 - 4) / 2; }

class GemCnn : public torch::nn::Module {
 public:
  GemCnn(const ImageShape& shape, std::int64_t classes)
      : conv1_(register_module("conv1", torch::nn::Conv2d(shape.channels, 10, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        fc1_(register_module(
            "fc1", torch::nn::Linear(
                       20 * gem_side_after(shape.height) * gem_side_after(shape.width), 300))),
        fc2_(register_module("fc2", torch::nn::Linear(300, 200))),
        fc3_(register_module("fc3", torch::nn::Linear(200, classes))) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::relu(torch::max_pool2d(conv1_(input), 2));
    x = seeded_dropout(conv2_(x), kGemDropout, is_training());
    x = torch::relu(torch::max_pool2d(x, 2)).flatten(1);
    x = seeded_dropout(torch::relu(fc1_(x)), kGemDropout, is_training());
    return fc3_(torch::relu(fc2_(x)));
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

Expected<ModelFactory> make_gem_cnn(const DataInfo& info) {
  const Expected<ImageShape> shape = image_shape("gem-cnn", info, kGemSmallestSide);
  if (!shape) return shape.error();
  return module_factory([shape = *shape, classes = info.classes] {
    return std::make_shared<GemCnn>(shape, classes);
  });
}

}  // namespace grapevine
