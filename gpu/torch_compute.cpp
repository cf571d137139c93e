#include "gpu/torch_compute.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "gpu/step_generator.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStepStream = 0x6d61736b73;  // messages/random.hpp: one purpose, one stream

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string shape_text(at::IntArrayRef shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

// Memory for a result: `recycled` where nobody else can see it and it fits, else new.
at::Tensor result_memory(FrozenTensor&& recycled, std::int64_t size, at::Device device) {
  const bool fits = recycled.sole_owner() && recycled.numel() == size &&
                    recycled.dtype() == at::kFloat && recycled.device() == device;
  if (fits) return std::move(recycled).thaw();
  return at::empty({size}, at::TensorOptions(at::kFloat).device(device));
}

Batch to_device(Batch batch, at::Device device) {
  return {batch.input.to(device), batch.target.to(device)};
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

}  // namespace

Expected<std::unique_ptr<Compute>> TorchCompute::make(TorchComputeConfig config) {
  GRAPEVINE_CHECK(config.model && config.data, "a TorchCompute without model or data");
  try {
    const DataInfo& info = config.data->info();
    Expected<Sampler> sampler =
        Sampler::make(config.seed, info.train_size, config.ranks, config.batch_size,
                      info.by_length ? Batching::by_length : Batching::shuffled);
    if (!sampler) return sampler.error();
    Expected<std::unique_ptr<Model>> model = config.model(config.seed);
    if (!model) return model.error();
    Expected<FlatTensors> parameters = FlatTensors::of_parameters(**model);
    if (!parameters)
      return bad_input("model '" + config.model_name + "': " + parameters.error().message);
    std::unique_ptr<TorchCompute> compute(
        new TorchCompute(std::move(config), *std::move(model), *std::move(parameters), *sampler));
    const Expected<void> fits = compute->check_fit();
    if (!fits) return fits.error();
    compute->parameters_.unbind();
    return std::unique_ptr<Compute>(std::move(compute));
  } catch (const std::exception& e) {
    return Error{Errc::failed, "model '" + config.model_name + "': " + one_line(e)};
  }
}

TorchCompute::TorchCompute(TorchComputeConfig config, std::unique_ptr<Model> model,
                           FlatTensors parameters, Sampler sampler)
    : config_(std::move(config)),
      model_(std::move(model)),
      parameters_(std::move(parameters)),
      buffers_(FlatTensors::of_buffers(*model_)),
      initial_parameters_(FrozenTensor::freeze(parameters_.gather())),
      loader_(config_.data, sampler, config_.rank, config_.loader) {
  if (buffers_.numel() > 0) initial_buffers_ = FrozenTensor::freeze(buffers_.gather());
  parameters_.move_to(config_.device);
  buffers_.move_to(config_.device);
}

Expected<void> TorchCompute::check_fit() {
  const DataInfo& info = config_.data->info();
  const std::string what =
      "model '" + config_.model_name + "' does not fit data '" + info.name + "'";
  Expected<Batch> batch =
      config_.data->batch(Split::train, {0, std::min<std::int64_t>(1, info.train_size - 1)}, 0);
  if (!batch) return batch.error();
  const std::string input_shape = shape_text(batch->input.sizes());
  const std::vector<std::int64_t> needed = output_shape(info, 2);
  try {
    const at::NoGradGuard no_grad;
    model_->train(false);
    const at::Tensor output = model_->forward(batch->input.to(config_.device));
    if (output.sizes() == at::IntArrayRef(needed) && output.is_floating_point()) return {};
    return bad_input(what + ": its output is " + shape_text(output.sizes()) + " where " +
                     shape_text(needed) + " is needed, for input " + input_shape +
                     ": choose another model or data set");
  } catch (const std::exception& e) {
    return bad_input(what + ": output " + shape_text(needed) + " is needed for input " +
                     input_shape + ", but its forward pass failed: " + one_line(e));
  }
}

Gradient TorchCompute::gradient(GradientRequest request) {
  const Step step = request.step;
  Expected<Gradient> result = Error{};
  try {
    result = try_gradient(request);
  } catch (const std::exception& e) {
    result = Error{Errc::failed, "step " + std::to_string(step) + ": " + one_line(e)};
  }
  if (result) return *std::move(result);
  Gradient failure;
  failure.step = step;
  failure.error = "rank " + std::to_string(config_.rank) + ": " + result.error().message;
  return failure;
}

Expected<Gradient> TorchCompute::try_gradient(GradientRequest& request) {
  // Taken out of the request, so that the caller's handle is the last one when this returns.
  const FrozenTensor z = std::exchange(request.z, {});
  const Expected<void> valid = check_request(z, request.buffers);
  if (!valid) return valid.error();

  Gradient result;
  result.step = request.step;
  const auto asked = Clock::now();
  Expected<Batch> read = loader_.next(request.step);
  result.data_seconds = seconds_since(asked);
  if (!read) return read.error();

  const auto start = Clock::now();
  const Batch batch = to_device(*std::move(read), config_.device);
  at::Tensor flat = result_memory(std::move(request.recycled), parameters_.numel(), z.device());
  load_buffers(request.buffers);
  const auto stream =
      mix_seed(mix_seed(config_.seed, kStepStream), static_cast<std::uint64_t>(config_.rank));
  seed_step_generator(config_.device, mix_seed(stream, static_cast<std::uint64_t>(request.step)));
  const Expected<void> done = forward_backward(z, batch, flat, result);
  if (!done) return done.error();
  if (buffers_.numel() > 0) result.buffers = FrozenTensor::freeze(buffers_.gather());
  synchronize();
  result.value = FrozenTensor::freeze(std::move(flat));
  result.samples = batch.input.size(0);
  if (config_.data->info().by_length) result.length = batch.input.size(1);
  result.compute_seconds = seconds_since(start);
  return result;
}

Expected<void> TorchCompute::forward_backward(const FrozenTensor& z, const Batch& batch,
                                              at::Tensor& flat, Gradient& result) {
  const Task task = config_.data->info().task;
  const at::AutoGradMode with_grad(true);
  const FrozenTensor staged = on_device(z);
  const BoundParameters bound(parameters_, staged);
  model_->train(true);
  const at::Tensor output = model_->forward(batch.input);
  const at::Tensor loss = batch_loss(task, output, batch.target);
  result.loss = loss.item<double>();
  if (!std::isfinite(result.loss))
    return Error{Errc::failed, "loss is not finite at step " + std::to_string(result.step) +
                                   ": lower the learning rate"};
  const Accuracy accuracy = batch_accuracy(task, output, batch.target);
  result.top1 = accuracy.top1;
  result.top5 = accuracy.top5;
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({loss}, parameters_.tensors(), {}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  if (flat.device() == config_.device) {
    parameters_.pack(gradients, flat);
  } else {
    // One transfer rather than one per parameter.
    at::Tensor staging = result_memory({}, parameters_.numel(), config_.device);
    parameters_.pack(gradients, staging);
    flat.copy_(staging);
  }
  return {};
}

Expected<Evaluation> TorchCompute::evaluate(const FrozenTensor& z, const FrozenTensor& buffers) {
  try {
    const Expected<void> valid = check_request(z, buffers);
    if (!valid) return valid.error();
    return try_evaluate(z, buffers);
  } catch (const std::exception& e) {
    return Error{Errc::failed, "evaluating model '" + config_.model_name + "': " + one_line(e)};
  }
}

Expected<Evaluation> TorchCompute::try_evaluate(const FrozenTensor& z,
                                                const FrozenTensor& buffers) {
  const DataInfo& info = config_.data->info();
  if (info.test_size < 1)
    return bad_input("data '" + info.name + "' has no test samples: train without evaluation");
  const at::NoGradGuard no_grad;
  const FrozenTensor staged = on_device(z);
  const BoundParameters bound(parameters_, staged);
  load_buffers(buffers);
  model_->train(false);
  Evaluation sum;
  const std::int64_t size = std::max<std::int64_t>(1, config_.eval_batch_size);
  for (std::int64_t begin = 0; begin < info.test_size; begin += size) {
    const std::int64_t end = std::min(begin + size, info.test_size);
    Expected<Batch> read = config_.data->batch(Split::test, range(begin, end), 0);
    if (!read) return read.error();
    const Batch batch = to_device(*std::move(read), config_.device);
    const at::Tensor output = model_->forward(batch.input);
    const Accuracy accuracy = batch_accuracy(info.task, output, batch.target);
    const auto share = static_cast<double>(end - begin) / static_cast<double>(info.test_size);
    sum.loss += share * batch_loss(info.task, output, batch.target).item<double>();
    sum.top1 += share * accuracy.top1;
    sum.top5 += share * accuracy.top5;
  }
  sum.samples = info.test_size;
  return sum;
}

Expected<void> TorchCompute::check_request(const FrozenTensor& z,
                                           const FrozenTensor& buffers) const {
  if (z.numel() != parameters_.numel() || z.dtype() != at::kFloat)
    return bad_input("z has " + std::to_string(z.numel()) + " values, model '" +
                     config_.model_name + "' has " + std::to_string(parameters_.numel()) +
                     " float32 parameters: send parameters of the same model");
  if (buffers.defined() && buffers.numel() != buffers_.numel())
    return bad_input("the request carries " + std::to_string(buffers.numel()) +
                     " buffer values, model '" + config_.model_name + "' has " +
                     std::to_string(buffers_.numel()) + ": send buffers of the same model");
  return {};
}

FrozenTensor TorchCompute::on_device(const FrozenTensor& z) const {
  if (z.device() == config_.device) return z;
  return FrozenTensor::freeze(z.read().to(config_.device));
}

void TorchCompute::load_buffers(const FrozenTensor& buffers) {
  if (buffers_.numel() > 0)
    buffers_.scatter(buffers.defined() ? buffers.read() : initial_buffers_.read());
}

// The caller may reuse z's memory on another stream as soon as gradient() returns.
void TorchCompute::synchronize() const {
  if (config_.device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(config_.device.type());
  guard.getStream(config_.device).synchronize();
}

}  // namespace grapevine
