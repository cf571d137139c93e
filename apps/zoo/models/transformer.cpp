// A small decoder-only transformer (Vaswani et al. 2017, with layer-norm before each part as in
// Radford et al. 2019): two layers of width 128, four heads, sinusoids for the positions, no
// dropout. A step sees itself and the steps before it. Sequences of features are classified from
// the last output that belongs to the sample; with tokens, the output of each step predicts that
// step's label. With F features and C classes 396,928 + 128 F + 129 C parameters; with V tokens
// 396,800 + 257 V.
#include <cmath>

#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kTransformerLayers = 2;
constexpr double kLongestPeriod = 10000;  // of the sinusoids, over 2π

torch::nn::LayerNorm layer_norm() {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth}));
}

// [T, kWidth]
at::Tensor positions(std::int64_t steps, const at::TensorOptions& options) {
  const at::Tensor step = at::arange(steps, options).unsqueeze(1);
  const at::Tensor pair = at::arange(0, kWidth, 2, options);
  const at::Tensor angle = step * at::exp(pair * (-std::log(kLongestPeriod) / kWidth));
  return at::stack({angle.sin(), angle.cos()}, 2).flatten(1);
}

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer()
      : norm1_(register_module("norm1", layer_norm())),
        norm2_(register_module("norm2", layer_norm())),
        attend_(register_module("attend", torch::nn::Linear(kWidth, 3 * kWidth))),
        mix_(register_module("mix", torch::nn::Linear(kWidth, kWidth))),
        widen_(register_module("widen", torch::nn::Linear(kWidth, 4 * kWidth))),
        narrow_(register_module("narrow", torch::nn::Linear(4 * kWidth, kWidth))) {}

  // x [B, T, kWidth]; `future` [T, T]: −∞ where the column comes after the row, else 0.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& future) {
    const at::Tensor x = input + attention(norm1_(input), future);
    return x + narrow_(at::gelu(widen_(norm2_(x))));
  }

 private:
  at::Tensor attention(const at::Tensor& x, const at::Tensor& future) {
    const std::int64_t batch = x.size(0), steps = x.size(1);
    // [3, B, heads, T, width of a head]
    const at::Tensor parts =
        attend_(x).view({batch, steps, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const double scale = 1 / std::sqrt(static_cast<double>(kWidth / kHeads));
    const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) * scale + future;
    const at::Tensor seen = at::matmul(at::softmax(scores, -1), parts[2]);
    return mix_(seen.transpose(1, 2).reshape({batch, steps, kWidth}));
  }

  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear attend_, mix_, widen_, narrow_;
};

class Transformer : public torch::nn::Module {
 public:
  explicit Transformer(const SequenceShape& shape) : tokens_(shape.vocabulary > 0) {
    if (tokens_)
      embedding_ = register_module("embedding", torch::nn::Embedding(shape.vocabulary, kWidth));
    else
      project_ = register_module("project", torch::nn::Linear(shape.features, kWidth));
    for (std::int64_t i = 0; i < kTransformerLayers; ++i)
      layers_.push_back(
          register_module("layer" + std::to_string(i), std::make_shared<DecoderLayer>()));
    norm_ = register_module("norm", layer_norm());
    fc_ = register_module("fc", torch::nn::Linear(kWidth, shape.classes));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = tokens_ ? embedding_(input.to(torch::kLong)) : project_(input.slice(2, 0, -1));
    x = x.to(torch::kFloat);  // the angles of late steps need more than the 16 bits of autocast
    const std::int64_t steps = x.size(1);
    x = x + positions(steps, x.options().requires_grad(false));
    const at::Tensor future =
        at::full({steps, steps}, -INFINITY, x.options().requires_grad(false)).triu(1);
    for (const auto& layer : layers_) x = layer->forward(x, future);
    x = norm_(x);
    if (tokens_) return fc_(x).transpose(1, 2);
    return fc_(at_last_step(x, input));
  }

 private:
  bool tokens_;
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::Linear project_{nullptr};
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

Expected<ModelFactory> make_transformer(const DataInfo& info) {
  const Expected<SequenceShape> shape = sequence_shape("transformer", info);
  if (!shape) return shape.error();
  return module_factory([shape = *shape] { return std::make_shared<Transformer>(shape); });
}

}  // namespace grapevine
