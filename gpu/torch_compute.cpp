#include "gpu/torch_compute.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "gpu/model/gradient_hooks.hpp"
#include "gpu/model/step_generator.hpp"
#include "gpu/timing/work_span.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kStepStream = 0x6d61736b73;  // messages/random.hpp: one purpose, one stream

// Pinned memory that a worker may take: gradients (one that is coming down, one that the role
// reads, one that is still on its way to others), as many buffers, the ring that uploads go
// through, and batches that are too small for it, in blocks for all their lengths.
constexpr std::size_t kStagedResults = 3;
constexpr std::size_t kStagedBatches = std::size_t{64} << 20;

constexpr std::int64_t kKernelAlignment = 128;  // bytes: a line of a GPU's memory

// All replicas of a group have the same gradient: only the first one returns it, or has memory for
// it, of which each downloads a slice.
bool comes_down(const TorchComputeConfig& config) { return !config.group || config.replica == 0; }

std::size_t staging_limit(const TorchComputeConfig& config, std::int64_t parameters,
                          std::int64_t buffers) {
  const auto block = [](std::int64_t floats) {
    return StagingPool::block_bytes(sizeof(float) * static_cast<std::size_t>(floats));
  };
  const std::size_t results =
      kStagedResults * (block(buffers) + (comes_down(config) ? block(parameters) : 0));
  return results + Transfers::kRingBytes + kStagedBatches;
}

// Views of a flat z would be turned by each convolution in each pass (channels last), or begin
// where a GPU's fast kernels cannot read them.
bool wants_own_layout(const TorchComputeConfig& config, const FlatTensors& parameters) {
  return config.channels_last ||
         (!config.runtime->in_host_memory() && !parameters.aligned(kKernelAlignment));
}

// Why the passes of this worker are not captured; empty: they are.
std::string why_no_graphs(const TorchComputeConfig& config) {
  const DataInfo& info = config.data->info();
  const auto& shape = info.sample_shape;
  if (auto why = config.runtime->why_no_graphs(); !why.empty()) return why;
  if (config.group) return "its group reduces gradients while the backward pass computes";
  if (config.scale_loss) return "the factor of fp16's loss changes between steps";
  if (info.by_length || std::find(shape.begin(), shape.end(), kTimeSteps) != shape.end())
    return "the batches of data '" + info.name + "' differ in length";
  return "";
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string shape_text(at::IntArrayRef shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

// Memory for a result: `recycled` where it has no other owner and fits, else new. On a device new:
// in the memory of a gradient that the peer's stream has used, the pass would wait for all work
// that this stream holds, such as the exchange that it is to overlap.
at::Tensor result_memory(FrozenTensor&& recycled, std::int64_t size, at::Device device) {
  const bool fits = recycled.thaws_at_once() && recycled.numel() == size &&
                    recycled.dtype() == at::kFloat && recycled.device() == device;
  if (fits) return std::move(recycled).thaw();
  return empty_to_send({size}, at::kFloat, device);
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

}  // namespace

Expected<std::unique_ptr<Compute>> TorchCompute::make(TorchComputeConfig config) {
  GRAPEVINE_CHECK(config.model && config.data, "a TorchCompute without model or data");
  const std::string in_model = "model '" + config.model_name + "': ";
  if (config.name.empty()) config.name = "rank " + std::to_string(config.rank);
  const std::string who = config.name;
  try {
    const DataInfo& info = config.data->info();
    const Objective objective(info.task, config.loss, config.label_smoothing);
    if (auto fits = check_objective(objective, info.name); !fits) return fits.error();
    Expected<Sampler> sampler =
        Sampler::make(config.seed, info.train_size, config.ranks, config.batch_size,
                      info.by_length ? Batching::by_length : Batching::shuffled);
    if (!sampler) return sampler.error();
    Expected<std::unique_ptr<Model>> model = config.model(config.seed);
    if (!model) return model.error();
    Expected<FlatTensors> parameters = FlatTensors::of_parameters(**model);
    if (!parameters) return bad_input(in_model + parameters.error().message);
    Expected<FlatTensors> buffers = FlatTensors::of_buffers(**model);
    if (!buffers) return bad_input(in_model + buffers.error().message);
    if (config.channels_last && info.sample_shape.size() != 3)
      return bad_input("--channels-last: data '" + info.name +
                       "' has no images: leave it out, or choose another data set");
    if (!config.runtime) config.runtime = host_runtime();
    config.loader.slice = static_cast<std::int64_t>(config.replica);
    config.loader.slices = static_cast<std::int64_t>(config.replicas);
    GRAPEVINE_CHECK(config.batch_size % (config.loader.slices * config.passes) == 0,
                    config.batch_size, " over ", config.replicas, " in ", config.passes);
    std::unique_ptr<TorchCompute> compute(new TorchCompute(std::move(config), *std::move(model),
                                                           *std::move(parameters),
                                                           *std::move(buffers), *sampler));
    const Expected<void> fits = compute->check_fit();
    if (!fits) return fits.error();
    compute->parameters_.unbind();
    return std::unique_ptr<Compute>(std::move(compute));
  } catch (const std::exception& e) {
    const std::string of_rank = is_out_of_memory(e) ? who + ": " : "";
    return Error{Errc::failed, of_rank + in_model + one_line(e)};
  }
}

TorchCompute::TorchCompute(TorchComputeConfig config, std::unique_ptr<Model> model,
                           FlatTensors parameters, FlatTensors buffers, Sampler sampler)
    : config_(std::move(config)),
      device_(config_.runtime->device()),
      model_(std::move(model)),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      initial_parameters_(FrozenTensor::freeze(parameters_.gather())),
      transfers_(config_.runtime, staging_limit(config_, parameters_.numel(), buffers_.numel()),
                 config_.timeout),
      loader_(config_.data, sampler, config_.rank, config_.loader) {
  if (config_.graphs) {
    if (!config_.graphs_notice) config_.graphs_notice = std::make_shared<GraphsNotice>(true);
    graphs_.emplace(config_.runtime, config_.name, config_.model_name, why_no_graphs(config_),
                    config_.last_step, config_.graphs_notice);
  }
  if (config_.group) buckets_ = buckets_of(parameters_, config_.bucket_bytes);
  if (buffers_.numel() > 0) initial_buffers_ = FrozenTensor::freeze(buffers_.gather());
  const auto scope = transfers_.begin_compute();
  if (wants_own_layout(config_, parameters_)) {
    parameters_.keep(device_, config_.channels_last ? at::MemoryFormat::ChannelsLast
                                                    : at::MemoryFormat::Contiguous);
  } else {
    parameters_.move_to(device_);
  }
  buffers_.move_to(device_);
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
    const Batch uploaded = transfers_.upload(*batch);
    const auto scope = transfers_.begin_compute();
    model_->train(false);
    const at::Tensor output = forward(uploaded.input);
    if (output.sizes() == at::IntArrayRef(needed) && output.is_floating_point()) {
      if (output.requires_grad() || learns_in_training(uploaded.input)) return {};
      return bad_input(what + ": its output has no gradient for its parameters, so that nothing " +
                       "could be learned: does its forward pass detach it?");
    }
    const bool swapped =
        output.dim() == 3 && output.transpose(1, 2).sizes() == at::IntArrayRef(needed);
    return bad_input(
        what + ": its output is " + shape_text(output.sizes()) + " where " + shape_text(needed) +
        " is needed, for input " + input_shape + ": " +
        (swapped ? "return output.transpose(1, 2)" : "choose another model or data set"));
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) throw;  // the model may fit: make() reports it
    return bad_input(what + ": output " + shape_text(needed) + " is needed for input " +
                     input_shape + ", but its forward pass failed: " + one_line(e));
  }
}

// A module may detach its output where it does not train.
bool TorchCompute::learns_in_training(const at::Tensor& input) {
  model_->train(true);
  const bool learns = forward(input).requires_grad();
  model_->train(false);
  if (buffers_.numel() > 0) buffers_.scatter(initial_buffers_.read().to(device_));
  return learns;
}

Gradient TorchCompute::gradient(GradientRequest request) {
  request.parts = nullptr;
  return gradient_or_error(request, nullptr);
}

Gradient TorchCompute::gradient_in_parts(GradientRequest request, const GivePart& give) {
  if (!knows_parts()) request.parts = nullptr;
  return gradient_or_error(request, give);
}

// Before the whole gradient is.
bool TorchCompute::knows_parts() const {
  return config_.runtime->in_host_memory() && config_.passes == 1 && !config_.scale_loss &&
         !config_.group;
}

Gradient TorchCompute::gradient_or_error(GradientRequest& request, const GivePart& give) {
  const Step step = request.step;
  Expected<Gradient> result = Error{};
  try {
    result = try_gradient(request, give);
  } catch (const std::exception& e) {
    result = Error{Errc::failed, "step " + std::to_string(step) + ": the pass through model '" +
                                     config_.model_name + "' threw: " + one_line(e)};
  }
  if (result) return *std::move(result);
  Gradient failure;
  failure.step = step;
  failure.error = config_.name + ": " + result.error().message;
  return failure;
}

// Once, as the thread is the worker's or the replica's own. A thread on other CPUs is slower, but
// computes the same: not an error.
void TorchCompute::bind_threads() {
  const CpuSet cpus = std::exchange(config_.near_cpus, {});
  if (cpus.empty()) return;
  if (const auto bound = bind_launching_threads(*config_.runtime, cpus); bound)
    spdlog::info("{}: its threads run on CPUs {}, near {}", config_.name, cpus_text(cpus),
                 device_.str());
  else
    spdlog::info("{}: its threads are not bound to CPUs: {}", config_.name, bound.error().message);
}

Expected<Gradient> TorchCompute::try_gradient(GradientRequest& request, const GivePart& give) {
  bind_threads();
  // Taken out of the request, so that the caller's handle is the last one when this returns.
  const FrozenTensor z = std::exchange(request.z, {});
  const Expected<void> valid = check_request(z, request.buffers);
  if (!valid) return valid.error();

  Gradient result;
  result.step = request.step;
  if (request.deal.ranks > 0 && loader_.deal(request.deal)) next_.reset();
  const Expected<Batch> batch = batch_of(request.step, result);
  if (!batch) return batch.error();
  const auto start = Clock::now();
  std::optional<GradientParts> parts;
  if (request.parts) parts.emplace(request.step, request.parts, parameters_.numel(), give);
  for (bool complete = false; !complete;) {
    const Expected<bool> passed = try_pass(z, request, *batch, result, parts ? &*parts : nullptr);
    if (!passed) return passed.error();
    complete = *passed;
  }
  result.samples = batch->input.size(0);
  if (config_.data->info().by_length) result.length = batch->input.size(1);
  result.compute_seconds = seconds_since(start);
  if (next_) result.compute_seconds -= next_->data_seconds;
  result.device_seconds = worked_since_last_gradient();
  return result;
}

// Of the device, whose other streams and users count as well. NaN at the first call: what came
// before it is no part of training.
double TorchCompute::worked_since_last_gradient() {
  if (config_.runtime->in_host_memory()) return std::numeric_limits<double>::quiet_NaN();
  const std::optional<double> worked = worked_seconds(device_);
  const std::optional<double> before = std::exchange(worked_before_, worked);
  return worked && before ? *worked - *before : std::numeric_limits<double>::quiet_NaN();
}

// On the device; read and uploaded during the last step where that was the step before.
Expected<Batch> TorchCompute::batch_of(Step step, Gradient& result) {
  const std::optional<Uploaded> ahead = std::exchange(next_, std::nullopt);
  if (ahead && ahead->step == step) {
    result.data_seconds = ahead->data_seconds;
    return ahead->batch;
  }
  const auto asked = Clock::now();
  set_reads(true);
  const Expected<Batch> read = loader_.next(step);
  set_reads(false);
  result.data_seconds = seconds_since(asked);
  if (!read) return read.error();
  return transfers_.upload(*read);
}

// While the device computes, but only what is there: others wait for this step's gradient. An error
// waits for the step that it belongs to, which reads again.
void TorchCompute::upload_batch_after(Step step) {
  if (config_.runtime->in_host_memory() || next_ || !loader_.ready(step + 1)) return;
  try {
    const auto asked = Clock::now();
    const Expected<Batch> read = loader_.next(step + 1);
    const double data_seconds = seconds_since(asked);
    if (read) next_ = Uploaded{step + 1, transfers_.upload(*read), data_seconds};
  } catch (const std::exception& e) {
    spdlog::debug("{}: batch of step {}: {}", config_.name, step + 1, one_line(e));
  }
}

TorchCompute::Route TorchCompute::route_of(const FrozenTensor& z) const {
  const bool in_place = config_.runtime->in_host_memory();
  Route route;
  route.resident = !in_place && (!z.defined() || !z.device().is_cpu());
  route.sliced = config_.group && !in_place && !route.resident;
  route.broadcast = route.resident && config_.spans_processes;
  return route;
}

// Without the batch. Vectors that the group brings get their memory.
PassInputs TorchCompute::upload_inputs(const FrozenTensor& z, const FrozenTensor& buffers,
                                       const Route& route) {
  PassInputs inputs;
  if (!z.defined()) {
    inputs.z = transfers_.memory_for(z_slot_, parameters_.numel());
    if (buffers_.numel() > 0)
      inputs.buffers = transfers_.memory_for(buffers_slot_, buffers_.numel());
    return inputs;
  }
  inputs.z = route.sliced ? transfers_.upload_slice(z, config_.replica, config_.replicas, z_slot_)
                          : transfers_.upload(z, z_slot_);
  inputs.buffers = upload_buffers(buffers);
  return inputs;
}

// What the group does for them, in the compute stream.
Expected<void> TorchCompute::complete_inputs(PassInputs& inputs, const Route& route) {
  const at::NoGradGuard no_grad;
  if (route.sliced) {
    if (auto gathered = config_.group->all_gather(config_.replica, inputs.z); !gathered)
      return gathered;
    inputs.z = inputs.z.narrow(0, 0, parameters_.numel());
  }
  if (!route.broadcast) return {};
  if (auto given = config_.group->broadcast(config_.replica, inputs.z); !given) return given;
  if (!inputs.buffers.defined()) return {};
  return config_.group->broadcast(config_.replica, inputs.buffers);
}

// Their mean stays in replica 0; in the compute stream.
Expected<void> TorchCompute::reduce_buffers(PassResults& pass) {
  if (!pass.buffers.defined()) return {};
  const at::NoGradGuard no_grad;
  if (auto reduced = config_.group->all_reduce_mean(config_.replica, pass.buffers); !reduced)
    return reduced;
  if (config_.replica > 0) pass.buffers = at::Tensor();
  return {};
}

// What this replica downloads of a bucket of the group's mean, which the exchange stream reduces.
void TorchCompute::download_bucket(const at::Tensor& mean, const at::Tensor& bucket) {
  const std::int64_t d = mean.numel(), offset = bucket.storage_offset() - mean.storage_offset();
  const FlatSlice own =
      config_.host_mean ? flat_slice(d, config_.replica, config_.replicas) : FlatSlice{0, d};
  const std::int64_t begin = std::max(offset, own.begin);
  const std::int64_t end = std::min(offset + bucket.numel(), own.begin + own.size);
  if (begin >= end) return;
  transfers_.download_reduced(config_.host_mean ? config_.host_mean->get() : mean_, mean,
                              {begin, end - begin});
}

// False: the gradient overflowed, and is to be computed again under a smaller factor of the loss.
Expected<bool> TorchCompute::try_pass(const FrozenTensor& z, GradientRequest& request,
                                      const Batch& batch, Gradient& result, GradientParts* parts) {
  const Route route = route_of(z);
  const bool resident = route.resident;
  PassInputs inputs = upload_inputs(z, request.buffers, route);
  inputs.batch = batch;
  PassResults pass;
  {
    const auto scope = transfers_.begin_compute();
    WorkSpan work(*config_.runtime, Stream::compute);
    if (const auto complete = complete_inputs(inputs, route); !complete) return complete.error();
    // Staged memory goes back to where the download takes it from.
    FrozenTensor recycled = std::exchange(request.recycled, {});
    if (!config_.runtime->in_host_memory() && !resident) recycled = {};
    downloads_mean_ = route.sliced && (config_.host_mean || comes_down(config_));
    if (route.sliced && comes_down(config_)) {
      mean_ = transfers_.host_memory(parameters_.numel());
      if (config_.host_mean) config_.host_mean->set(std::exchange(mean_, {}));
    }
    Expected<PassResults> passed =
        run_pass(inputs, resident, request.step, std::move(recycled), parts);
    if (!passed) return passed.error();
    pass = *std::move(passed);
    if (route.broadcast)
      if (const auto reduced = reduce_buffers(pass); !reduced) return reduced.error();
    work.end();  // before what the host will wait for: it is complete then
    transfers_.end_compute();
  }
  const auto result_of = [&](at::Tensor& computed) {
    return resident ? std::move(computed) : transfers_.download(computed);
  };
  at::Tensor gradient;
  if (route.sliced)
    gradient = std::exchange(mean_, {}).flat;
  else if (comes_down(config_))
    gradient = result_of(pass.gradient);
  at::Tensor buffers = pass.buffers.defined() ? result_of(pass.buffers) : at::Tensor();
  const at::Tensor figures = transfers_.download(pass.figures);
  pass = {};
  upload_batch_after(request.step);
  if (const Expected<void> here = transfers_.finish(); !here) return here.error();

  if (const Expected<bool> fits = take_figures(figures, result); !fits || !*fits) return fits;
  const auto frozen = [&](at::Tensor&& t) {
    return resident ? transfers_.keep(std::move(t)) : FrozenTensor::freeze(std::move(t));
  };
  if (gradient.defined()) result.value = frozen(std::move(gradient));
  if (buffers.defined()) result.buffers = frozen(std::move(buffers));
  return true;
}

// In the compute stream. `resident`: the results stay on the device, for a peer.
Expected<PassResults> TorchCompute::run_pass(const PassInputs& inputs, bool resident, Step step,
                                             FrozenTensor&& recycled, GradientParts* parts) {
  const bool counts_hits = step % config_.accuracy_every == 0 || step + 1 == config_.last_step;
  const StepGraphs::Run run = [&](const PassInputs& in, at::Tensor flat) {
    if (in.buffers.defined()) buffers_.scatter(in.buffers);
    return forward_backward(in.z, in.batch, std::move(flat), counts_hits, parts);
  };
  const auto memory = [&] {
    return result_memory(std::move(recycled), parameters_.numel(), device_);
  };
  if (graphs_ && graphs_->replays(inputs.batch, counts_hits, step)) {
    const bool z_is_fixed = inputs.z.is_same(z_slot_.memory);
    Expected<PassResults> fixed = graphs_->replay(inputs, z_is_fixed, counts_hits, run);
    if (!fixed || !resident) return fixed;
    // The peer keeps its results while the next replay writes new ones.
    const at::NoGradGuard no_grad;
    at::Tensor gradient = memory();
    gradient.copy_(fixed->gradient);
    at::Tensor buffers = fixed->buffers.defined() ? fixed->buffers.clone() : at::Tensor();
    return PassResults{std::move(gradient), std::move(buffers), fixed->figures};
  }
  at::Tensor flat;
  if (parts == nullptr) flat = memory();
  seed_masks(step);
  const auto pass = [&] { return run(inputs, std::move(flat)); };
  return graphs_ ? graphs_->watched(inputs.batch, counts_hits, pass) : pass();
}

// Those of a pass, downloaded. False, for try_pass(): the gradient overflowed.
Expected<bool> TorchCompute::take_figures(const at::Tensor& figures, Gradient& result) {
  const double* figure = figures.data_ptr<double>();
  result.loss = figure[0];
  result.top1 = figure[1];
  result.top5 = figure[2];
  if (!std::isfinite(result.loss))
    return Error{Errc::failed,
                 "loss is not finite at step " + std::to_string(result.step) +
                     (result.step == 0 ? ", before the first update: check the model and the data"
                                       : ": lower the learning rate")};
  if (config_.scale_loss && figure[3] == 0) return lower_scale(result.step);
  if (config_.scale_loss) loss_scale_.succeeded();
  return true;
}

// False, for try_pass().
Expected<bool> TorchCompute::lower_scale(Step step) {
  const double before = loss_scale_.factor();
  if (!loss_scale_.lower())
    return Error{Errc::failed, "the gradient is not finite at step " + std::to_string(step) +
                                   ": use --precision bf16, or lower the learning rate"};
  spdlog::info("{}: step {}: the gradient overflows at loss scale {}; again with {}", config_.name,
               step, before, loss_scale_.factor());
  return false;
}

void TorchCompute::seed_masks(Step step) const {
  auto stream =
      mix_seed(mix_seed(config_.seed, kStepStream), static_cast<std::uint64_t>(config_.rank));
  if (config_.replica > 0) stream = mix_seed(stream, config_.replica);
  seed_step_generator(device_, mix_seed(stream, static_cast<std::uint64_t>(step)));
}

// float32 for every precision.
at::Tensor TorchCompute::forward(const at::Tensor& input) {
  const AutocastScope autocast(config_.precision, device_.type());
  const at::Tensor output = model_->forward(
      config_.channels_last ? input.contiguous(at::MemoryFormat::ChannelsLast) : input);
  return config_.precision == Precision::fp32 ? output : output.to(at::kFloat);
}

Expected<TorchCompute::Part> TorchCompute::add_part(const Batch& part, std::int64_t index,
                                                    at::Tensor& flat, GradientParts* parts) {
  const Objective objective(config_.data->info().task, config_.loss, config_.label_smoothing);
  const at::AutoGradMode with_grad(true);
  const at::Tensor output = forward(part.input);
  const at::Tensor loss = batch_loss(objective, output, part.target);
  const double share = 1 / static_cast<double>(config_.passes);
  const double factor = share * (config_.scale_loss ? loss_scale_.factor() : 1);
  const at::Tensor scaled = factor == 1 ? loss : loss * factor;
  const Part done{loss.detach() * share, output.detach()};
  const bool first = index == 0, last = index + 1 == config_.passes;
  if (parts != nullptr) {
    backward_in_parts(loss, parameters_, *parts);
    flat = parts->finish();
  } else if (config_.group && last) {
    if (const auto reduced = reduce_gradients(scaled, first, flat); !reduced)
      return reduced.error();
  } else {
    add_gradients(scaled, first, flat);
  }
  return done;
}

// Adds the gradients of `loss` to `flat`, or puts them there.
void TorchCompute::add_gradients(const at::Tensor& loss, bool first, at::Tensor& flat) {
  const std::vector<at::Tensor> gradients =
      torch::autograd::grad({loss}, parameters_.tensors(), {}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  if (first)
    parameters_.pack(gradients, flat);
  else
    parameters_.add(gradients, flat);
}

// The same, then the mean over all replicas, bucket by bucket while the backward pass computes the
// next ones, and what is to be on the host comes down. The host launches; the streams wait for each
// other. After an error no bucket is reduced any more: the group is of no use, for the other
// replicas either.
Expected<void> TorchCompute::reduce_gradients(const at::Tensor& loss, bool first,
                                              const at::Tensor& flat) {
  Expected<void> reduced;
  const GradientBuckets::Complete reduce = [&](at::Tensor bucket) {
    if (!reduced) return;
    {
      const auto scope = transfers_.begin_exchange(bucket);
      reduced = config_.group->all_reduce_mean(config_.replica, bucket);
    }
    if (reduced && downloads_mean_) download_bucket(flat, bucket);
  };
  GradientBuckets buckets(parameters_, buckets_, flat, /*adds=*/!first,
                          config_.scale_loss ? 1 / loss_scale_.factor() : 1, reduce);
  backward_by_parameter(loss, parameters_, [&](std::size_t i, const at::Tensor& gradient) {
    const auto scope = config_.runtime->enter(Stream::compute);  // also on the engine's thread
    buckets.add(i, gradient);
  });
  buckets.finish();
  transfers_.end_exchange();
  return reduced;
}

// Puts everything into the device's stream and reads nothing back: the host does not wait here, but
// for other replicas to come as far.
Expected<PassResults> TorchCompute::forward_backward(const at::Tensor& z, const Batch& batch,
                                                     at::Tensor flat, bool counts_hits,
                                                     GradientParts* parts) {
  const Objective objective(config_.data->info().task, config_.loss, config_.label_smoothing);
  const BoundParameters bound(parameters_, z);
  model_->train(true);
  const std::int64_t size = batch.input.size(0) / config_.passes;
  at::Tensor loss;
  std::vector<at::Tensor> accuracies;
  for (std::int64_t i = 0; i < config_.passes; ++i) {
    const Batch part{batch.input.narrow(0, i * size, size), batch.target.narrow(0, i * size, size)};
    const Expected<Part> done = add_part(part, i, flat, parts);
    if (!done) return done.error();
    loss = loss.defined() ? loss + done->loss : done->loss;
    accuracies.push_back(counts_hits ? accuracy_figures(objective, done->output, part.target)
                                     : no_accuracy_figures(done->output));
  }
  const at::NoGradGuard no_grad;
  if (config_.scale_loss && !config_.group) flat.mul_(1 / loss_scale_.factor());
  const at::Tensor finite = config_.scale_loss ? flat.isfinite().all().to(at::kDouble).view({1})
                                               : at::ones({1}, loss.options().dtype(at::kDouble));
  PassResults pass;
  const at::Tensor accuracy =
      accuracies.size() == 1 ? accuracies.front() : at::stack(accuracies).mean(0);
  pass.figures = at::cat({loss.to(at::kDouble).view({1}), accuracy, finite});
  if (buffers_.numel() > 0) pass.buffers = buffers_.gather(device_);
  pass.gradient = std::move(flat);
  return pass;
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

std::int64_t TorchCompute::evaluation_pass() const {
  if (config_.eval_batch_size > 0) return config_.eval_batch_size;
  const std::int64_t trained = config_.batch_size / (config_.loader.slices * config_.passes);
  return evaluated_samples(config_.data->info(), trained);
}

Expected<Evaluation> TorchCompute::try_evaluate(const FrozenTensor& z,
                                                const FrozenTensor& buffers) {
  const DataInfo& info = config_.data->info();
  if (info.test_size < 1)
    return bad_input("data '" + info.name + "' has no test samples: train without evaluation");
  const at::NoGradGuard no_grad;
  auto pass = gate_pass();
  if (!pass) return pass.error();
  const at::Tensor flat_z = transfers_.upload(z, z_slot_);
  const at::Tensor flat_buffers = upload_buffers(buffers);
  const auto scope = transfers_.begin_compute();
  const BoundParameters bound(parameters_, flat_z);
  if (flat_buffers.defined()) buffers_.scatter(flat_buffers);
  model_->train(false);
  *pass = nullptr;
  Evaluation sum;
  const std::int64_t size = evaluation_pass();
  for (std::int64_t begin = 0; begin < info.test_size; begin += size) {
    const std::int64_t end = std::min(begin + size, info.test_size);
    const Expected<at::Tensor> figures = evaluate_batch(begin, end);
    if (!figures) return figures.error();
    const auto share = static_cast<double>(end - begin) / static_cast<double>(info.test_size);
    const double* figure = figures->data_ptr<double>();
    sum.loss += share * figure[0];
    sum.top1 += share * figure[1];
    sum.top5 += share * figure[2];
    if (!evaluation_goes_on())
      return Error{Errc::stopped, "the evaluation was stopped before the last test sample"};
  }
  sum.samples = info.test_size;
  return sum;
}

// [3] float64 on the host: loss, top1, top5 of the test samples [begin, end). They come down as a
// step's results do: reading them from the device's memory would wait for it without a limit.
Expected<at::Tensor> TorchCompute::evaluate_batch(std::int64_t begin, std::int64_t end) {
  const Objective objective(config_.data->info().task, config_.loss);
  Expected<Batch> read = config_.data->batch(Split::test, range(begin, end), 0);
  if (!read) return read.error();
  auto pass = gate_pass();
  if (!pass) return pass.error();
  const Batch batch = transfers_.upload(*read);
  const auto behind_the_batch = transfers_.begin_compute();
  WorkSpan work(*config_.runtime, Stream::compute);
  const at::Tensor output = forward(batch.input);
  const at::Tensor figures =
      at::cat({batch_loss(objective, output, batch.target).to(at::kDouble).view({1}),
               accuracy_figures(objective, output, batch.target)});
  work.end();
  transfers_.end_compute();
  at::Tensor here = transfers_.download(figures);
  *pass = nullptr;  // nothing is held while the host waits
  if (const Expected<void> done = transfers_.finish(); !done) return done.error();
  return here;
}

// For evaluation, which runs beside training on a GPU that a group may use: what it puts there may
// wait for the GPU, so it keeps out of the way of launches.
Expected<std::unique_ptr<LaunchGate::Pass>> TorchCompute::gate_pass() const {
  if (config_.runtime->in_host_memory()) return std::unique_ptr<LaunchGate::Pass>();
  auto pass = std::make_unique<LaunchGate::Pass>(launch_gate(), config_.timeout);
  if (pass->granted()) return pass;
  return Error{Errc::timeout, "evaluation waited for a collective that was not launched in time"};
}

Expected<void> TorchCompute::check_request(const FrozenTensor& z,
                                           const FrozenTensor& buffers) const {
  if (!z.defined() && config_.spans_processes && config_.replica > 0) return {};
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

at::Tensor TorchCompute::upload_buffers(const FrozenTensor& buffers) {
  if (buffers_.numel() == 0) return {};
  return transfers_.upload(buffers.defined() ? buffers : initial_buffers_, buffers_slot_);
}

}  // namespace grapevine
