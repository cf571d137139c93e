#include "gpu/model/flat_params.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <map>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// One operation for many tensors, where LibTorch has it: on a GPU a launch for each of a model's
// hundreds of tensors takes longer than the copies. One that changes the layout would make it many.
void copy_each(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  std::vector<at::Tensor> same_to, same_from;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].strides() == from[i].strides()) {
      same_to.push_back(to[i]);
      same_from.push_back(from[i]);
    } else {
      at::Tensor(to[i]).copy_(from[i]);
    }
  }
  if (!same_to.empty()) at::_foreach_copy_(same_to, same_from);
#else
  for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
#endif
}

// Flat float32. Those of one other type (batch-norm's counters) are converted together.
std::vector<at::Tensor> flat_floats(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> flat;
  std::map<at::ScalarType, std::vector<at::Tensor>> others;
  for (const at::Tensor& part : parts) {
    flat.push_back(part.reshape({-1}));
    if (part.scalar_type() != at::kFloat) others[part.scalar_type()].push_back(flat.back());
  }
  for (auto& [type, same] : others) {
    const at::Tensor converted = at::cat(same).to(at::kFloat);
    std::int64_t begin = 0;
    for (at::Tensor& each : flat) {
      if (each.scalar_type() != type) continue;
      const std::int64_t count = each.numel();
      each = converted.narrow(0, begin, count);
      begin += count;
    }
  }
  return flat;
}

// NaN stays what it is.
bool survives_float32(const at::Tensor& values) {
  const at::Tensor back = values.to(at::kFloat).to(values.scalar_type());
  return back.eq(values)
      .logical_or(back.ne(back).logical_and(values.ne(values)))
      .all()
      .item<bool>();
}

}  // namespace

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

Expected<FlatTensors> FlatTensors::of_buffers(Model& model) {
  const std::vector<NamedTensor> named = model.buffers();
  for (const NamedTensor& each : named) {
    const at::ScalarType type = each.tensor.scalar_type();
    const std::string what = "buffer '" + each.name + "' is " + c10::toString(type);
    if (!at::isFloatingType(type) && !at::isIntegralType(type, /*includeBool=*/true))
      return bad_input(what + " where real numbers are needed" +
                       (at::isComplexType(type) ? ": keep torch.view_as_real of it" : ""));
    if (!survives_float32(each.tensor))
      return bad_input(what + ", with values that float32 does not hold: " +
                       (at::isFloatingType(type) ? "call .float() on the model before saving it"
                                                 : "keep whole numbers of at most 16777216 in it"));
  }
  return FlatTensors(named);
}

at::Tensor FlatTensors::gather(at::Device device) const {
  const at::NoGradGuard no_grad;
  at::Tensor flat = at::empty({numel_}, at::TensorOptions(at::kFloat).device(device));
  pack(tensors_, flat);
  return flat;
}

void FlatTensors::scatter(const at::Tensor& flat) {
  GRAPEVINE_CHECK(flat.numel() == numel_, flat.numel(), " values for ", numel_, " elements");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> to, from;
  std::map<at::ScalarType, std::vector<std::size_t>> others;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor& tensor = tensors_[i];
    if (tensor.sizes() != at::IntArrayRef(shapes_[i]))
      tensor.set_data(at::empty(shapes_[i], tensor.options()));
    to.push_back(tensor);
    from.push_back(flat.narrow(0, offsets_[i], tensor.numel()));
    if (tensor.scalar_type() != at::kFloat) others[tensor.scalar_type()].push_back(i);
  }
  for (const auto& [type, same] : others) {
    std::vector<at::Tensor> values;
    for (const std::size_t i : same) values.push_back(from[i]);
    const at::Tensor converted = at::cat(values).to(type);
    std::int64_t begin = 0;
    for (const std::size_t i : same) {
      from[i] = converted.narrow(0, begin, to[i].numel());
      begin += to[i].numel();
    }
  }
  for (std::size_t i = 0; i < to.size(); ++i) from[i] = from[i].view(shapes_[i]);
  copy_each(to, from);
}

void FlatTensors::pack(const std::vector<at::Tensor>& parts, at::Tensor& flat,
                       std::size_t first) const {
  const std::size_t last = first + parts.size();
  GRAPEVINE_CHECK(last <= tensors_.size(), last, " of ", tensors_.size(), " tensors");
  if (parts.empty()) return;
  const std::int64_t end = last < tensors_.size() ? offsets_[last] : numel_;
  GRAPEVINE_CHECK(flat.numel() == end - offsets_[first], flat.numel(), " elements");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> defined = parts;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].defined()) defined[i] = at::zeros(shapes_[first + i], flat.options());
  at::cat_out(flat, flat_floats(defined));
}

void FlatTensors::add(const std::vector<at::Tensor>& parts, at::Tensor& flat,
                      std::size_t first) const {
  const at::NoGradGuard no_grad;
  at::Tensor more = at::empty_like(flat);
  pack(parts, more, first);
  flat.add_(more);
}

void FlatTensors::move_to(at::Device device) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors_) tensor.set_data(tensor.to(device));
}

bool FlatTensors::aligned(std::int64_t bytes) const {
  return std::all_of(offsets_.begin(), offsets_.end(), [bytes](std::int64_t offset) {
    return offset * static_cast<std::int64_t>(sizeof(float)) % bytes == 0;
  });
}

void FlatTensors::keep(at::Device device, at::MemoryFormat images) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors_) {
    const auto format = tensor.dim() == 4 ? images : at::MemoryFormat::Contiguous;
    const auto options = tensor.options().device(device).memory_format(format);
    tensor.set_data(at::empty(tensor.sizes(), options).copy_(tensor));
  }
  kept_ = true;
}

void FlatTensors::bind(const at::Tensor& flat) {
  if (kept_) return scatter(flat);
  GRAPEVINE_CHECK(flat.numel() == numel_, flat.numel(), " values for ", numel_, " elements");
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t end = i + 1 < tensors_.size() ? offsets_[i + 1] : numel_;
    tensors_[i].set_data(flat.narrow(0, offsets_[i], end - offsets_[i]).view(shapes_[i]));
  }
}

void FlatTensors::unbind() {
  if (kept_) return;
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
  Expected<FlatTensors> own_buffers = FlatTensors::of_buffers(model);
  if (!own_buffers) return own_buffers.error();
  if (buffers.defined() && buffers.numel() != own_buffers->numel())
    return bad_input("the flat tensor has " + std::to_string(buffers.numel()) +
                     " buffer values, the model " + std::to_string(own_buffers->numel()) +
                     ": use the model that was trained");
  parameters->scatter(z.read());
  if (buffers.defined()) own_buffers->scatter(buffers.read());
  return {};
}

}  // namespace grapevine
