// A recurrent network: two layers of 128 long short-term memory cells (Hochreiter & Schmidhuber
// 1997; with forget gates, Gers et al. 2000). Sequences of features are classified from the last
// output that belongs to the sample. Tokens are embedded in 128 dimensions, and the output of each
// step predicts that step's label. With F features and C classes 198,656 + 512 F + 129 C parameters
// (PyTorch counts two biases a layer); with V tokens 264,192 + 257 V.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kLstmHidden = 128;
constexpr std::int64_t kLstmLayers = 2;

torch::nn::LSTMOptions layers(std::int64_t inputs) {
  return torch::nn::LSTMOptions(inputs, kLstmHidden).num_layers(kLstmLayers).batch_first(true);
}

class FeatureLstm : public torch::nn::Module {
 public:
  explicit FeatureLstm(const SequenceShape& shape)
      : lstm_(register_module("lstm", torch::nn::LSTM(layers(shape.features)))),
        fc_(register_module("fc", torch::nn::Linear(kLstmHidden, shape.classes))) {}

  // The padding comes after a sample's own steps: it cannot reach what is read.
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor output = std::get<0>(lstm_(input.slice(2, 0, -1)));
    return fc_(at_last_step(output, input));
  }

 private:
  torch::nn::LSTM lstm_;
  torch::nn::Linear fc_;
};

class TokenLstm : public torch::nn::Module {
 public:
  explicit TokenLstm(const SequenceShape& shape)
      : embedding_(
            register_module("embedding", torch::nn::Embedding(shape.vocabulary, kLstmHidden))),
        lstm_(register_module("lstm", torch::nn::LSTM(layers(kLstmHidden)))),
        fc_(register_module("fc", torch::nn::Linear(kLstmHidden, shape.classes))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor output = std::get<0>(lstm_(embedding_(input.to(torch::kLong))));
    return fc_(output).transpose(1, 2);
  }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear fc_;
};

}  // namespace

Expected<ModelFactory> make_lstm(const DataInfo& info) {
  const Expected<SequenceShape> shape = sequence_shape("lstm", info);
  if (!shape) return shape.error();
  if (shape->vocabulary > 0)
    return module_factory([shape = *shape] { return std::make_shared<TokenLstm>(shape); });
  return module_factory([shape = *shape] { return std::make_shared<FeatureLstm>(shape); });
}

}  // namespace grapevine
