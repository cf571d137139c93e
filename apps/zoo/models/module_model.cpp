#include "apps/zoo/models/module_model.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "actors/record/pickle_dict.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

void uniform_by_fan_in(at::Tensor& weight, at::Tensor& bias, at::Generator& generator) {
  const auto fan_in = static_cast<double>(weight[0].numel());
  const double bound = 1 / std::sqrt(fan_in);
  weight.uniform_(-bound, bound, generator);
  if (bias.defined()) bias.uniform_(-bound, bound, generator);
}

// Of the tensor alone: a view would drag the whole flat tensor into the file.
at::Tensor own_copy(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
}

}  // namespace

void initialise(torch::nn::Module& module, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (const auto& each : module.modules()) {
    if (auto* linear = each->as<torch::nn::LinearImpl>()) {
      uniform_by_fan_in(linear->weight, linear->bias, generator);
    } else if (auto* conv = each->as<torch::nn::Conv2dImpl>()) {
      uniform_by_fan_in(conv->weight, conv->bias, generator);
    } else if (auto* norm = each->as<torch::nn::BatchNorm2dImpl>()) {
      norm->reset_parameters();
    } else if (auto* norm = each->as<torch::nn::LayerNormImpl>()) {
      norm->reset_parameters();
    } else if (auto* lstm = each->as<torch::nn::LSTMImpl>()) {
      const double bound = 1 / std::sqrt(static_cast<double>(lstm->options.hidden_size()));
      for (at::Tensor& each_weight : lstm->parameters())
        each_weight.uniform_(-bound, bound, generator);
    } else if (auto* embedding = each->as<torch::nn::EmbeddingImpl>()) {
      embedding->weight.normal_(0, 1, generator);
    } else {
      GRAPEVINE_CHECK(each->parameters(/*recurse=*/false).empty(), each->name());
    }
  }
}

ModuleModel::ModuleModel(std::shared_ptr<torch::nn::Module> module, Forward forward)
    : module_(std::move(module)), forward_(std::move(forward)) {}

std::vector<NamedTensor> ModuleModel::parameters() {
  std::vector<NamedTensor> all;
  for (const auto& item : module_->named_parameters()) all.push_back({item.key(), item.value()});
  return all;
}

std::vector<NamedTensor> ModuleModel::buffers() {
  std::vector<NamedTensor> all;
  for (const auto& item : module_->named_buffers()) all.push_back({item.key(), item.value()});
  return all;
}

Expected<void> ModuleModel::save(const std::string& path) {
  try {
    c10::Dict<std::string, at::Tensor> state;
    for (const NamedTensor& each : parameters()) state.insert(each.name, own_copy(each.tensor));
    for (const NamedTensor& each : buffers()) state.insert(each.name, own_copy(each.tensor));
    const std::vector<char> bytes = pickle_dict(state);
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (file) return {};
    const std::string why = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
    return Error{Errc::io, "cannot write the model to '" + path + "'" + why +
                               "; check the folder, its space and the limit on the size of files"};
  } catch (const std::exception& e) {
    return Error{Errc::failed, "saving the model to '" + path + "': " + one_line(e)};
  }
}

}  // namespace grapevine
