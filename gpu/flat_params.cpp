#include "gpu/flat_params.hpp"

#include <ATen/ATen.h>

#include "messages/check.hpp"

namespace grapevine {

FlatTensors::FlatTensors(const std::vector<NamedTensor>& named) {
  for (const NamedTensor& each : named) {
    tensors_.push_back(each.tensor);
    shapes_.push_back(each.tensor.sizes().vec());
    offsets_.push_back(numel_);
    numel_ += each.tensor.numel();
  }
}

Expected<FlatTensors> FlatTensors::of_parameters(Model& model) {
  const std::vector<NamedTensor> named = model.parameters();
  for (const NamedTensor& each : named) {
    if (each.tensor.scalar_type() != at::kFloat)
      return bad_input("parameter '" + each.name + "' is " +
                       c10::toString(each.tensor.scalar_type()) +
                       " where Float is needed: call .float() on the model before saving it");
  }
  FlatTensors flat(named);
  if (flat.numel() == 0)
    return bad_input("the model has no trainable parameters: set requires_grad on some of them");
  return flat;
}

FlatTensors FlatTensors::of_buffers(Model& model) { return FlatTensors(model.buffers()); }

at::Tensor FlatTensors::gather(at::Device device) const {
  const at::NoGradGuard no_grad;
  at::Tensor flat = at::empty({numel_}, at::TensorOptions(at::kFloat).device(device));
  pack(tensors_, flat);
  return flat;
}

void FlatTensors::scatter(const at::Tensor& flat) {
  GRAPEVINE_CHECK(flat.numel() == numel_, flat.numel(), " values for ", numel_, " elements");
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor& tensor = tensors_[i];
    if (tensor.sizes() != at::IntArrayRef(shapes_[i]))
      tensor.set_data(at::empty(shapes_[i], tensor.options()));
    const std::int64_t count = tensor.numel();
    tensor.copy_(flat.narrow(0, offsets_[i], count).view(shapes_[i]));
  }
}

void FlatTensors::pack(const std::vector<at::Tensor>& parts, at::Tensor& flat) const {
  GRAPEVINE_CHECK(parts.size() == tensors_.size() && flat.numel() == numel_);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t end = i + 1 < parts.size() ? offsets_[i + 1] : numel_;
    at::Tensor slot = flat.narrow(0, offsets_[i], end - offsets_[i]).view(shapes_[i]);
    if (parts[i].defined()) {
      slot.copy_(parts[i]);
    } else {
      slot.zero_();
    }
  }
}

void FlatTensors::move_to(at::Device device) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors_) tensor.set_data(tensor.to(device));
}

void FlatTensors::bind(const at::Tensor& flat) {
  GRAPEVINE_CHECK(flat.numel() == numel_, flat.numel(), " values for ", numel_, " elements");
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t end = i + 1 < tensors_.size() ? offsets_[i + 1] : numel_;
    tensors_[i].set_data(flat.narrow(0, offsets_[i], end - offsets_[i]).view(shapes_[i]));
  }
}

void FlatTensors::unbind() {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors_) tensor.set_data(at::empty({0}, tensor.options()));
}

BoundParameters::BoundParameters(FlatTensors& parameters, const FrozenTensor& z)
    : BoundParameters(parameters, z.read()) {}

BoundParameters::BoundParameters(FlatTensors& parameters, const at::Tensor& z)
    : parameters_(parameters) {
  parameters_.bind(z);
}

BoundParameters::~BoundParameters() { parameters_.unbind(); }

Expected<void> load_flat(Model& model, const FrozenTensor& z, const FrozenTensor& buffers) {
  Expected<FlatTensors> parameters = FlatTensors::of_parameters(model);
  if (!parameters) return parameters.error();
  if (z.numel() != parameters->numel())
    return bad_input("the flat tensor has " + std::to_string(z.numel()) + " values, the model " +
                     std::to_string(parameters->numel()) +
                     " parameters: use the model that was trained");
  FlatTensors own_buffers = FlatTensors::of_buffers(model);
  if (buffers.defined() && buffers.numel() != own_buffers.numel())
    return bad_input("the flat tensor has " + std::to_string(buffers.numel()) +
                     " buffer values, the model " + std::to_string(own_buffers.numel()) +
                     ": use the model that was trained");
  parameters->scatter(z.read());
  if (buffers.defined()) own_buffers.scatter(buffers.read());
  return {};
}

}  // namespace grapevine
