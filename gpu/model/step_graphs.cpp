#include "gpu/model/step_graphs.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "gpu/model/step_generator.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kFigures = 4;

std::size_t index_of(bool counts_hits) { return counts_hits ? 1 : 0; }

// Nothing where it lies there already.
void copy_into(at::Tensor& fixed, const at::Tensor& now) {
  if (!fixed.defined() || fixed.data_ptr() == now.data_ptr()) return;
  fixed.copy_(now);
}

}  // namespace

StepGraphs::StepGraphs(std::shared_ptr<DeviceRuntime> runtime, std::string name, std::string model,
                       std::string why_not, Step last_step, std::shared_ptr<GraphsNotice> notice)
    : runtime_(std::move(runtime)),
      name_(std::move(name)),
      model_(std::move(model)),
      last_step_(last_step),
      notice_(std::move(notice)),
      why_not_(std::move(why_not)) {}

bool StepGraphs::has_shape(const Batch& batch) const {
  return batch.input.sizes() == at::IntArrayRef(input_shape_) &&
         batch.target.sizes() == at::IntArrayRef(target_shape_);
}

void StepGraphs::give_up(const std::string& why) {
  why_not_ = why;
  said_why_not_ = true;
  notice_->report(name_, why);
}

// A run whose steps never come to a replay has nothing of the option.
void StepGraphs::count_eager_pass(Step step) {
  if (inputs_.z.defined() || eager_passes_ == kPatience) return;
  ++eager_passes_;
  const bool ends = step + 1 == last_step_;
  if (!ends && eager_passes_ < kPatience) return;
  eager_passes_ = kPatience;
  notice_->report(name_, "no step is replayed" + std::string(ends ? "" : " so far") + ": " +
                             std::to_string(kWarmUps) +
                             " steps in a row with batches of one shape come before the first");
}

bool StepGraphs::replays(const Batch& batch, bool counts_hits, Step step) {
  if (!why_not_.empty()) {
    if (!said_why_not_) give_up(why_not_);
    return false;
  }
  const bool same_shape = warm_ups_ == kWarmUps && has_shape(batch);
  if (same_shape && warm_[index_of(counts_hits)]) return true;
  count_eager_pass(step);
  if (warm_ups_ < kWarmUps || same_shape) return false;
  if (!std::exchange(said_other_shape_, true))
    spdlog::info(
        "{}: step {}: its batch has another shape than the captured ones: such steps are "
        "computed without a CUDA graph",
        name_, step);
  return false;
}

Expected<PassResults> StepGraphs::watched(const Batch& batch, bool counts_hits,
                                          const std::function<Expected<PassResults>()>& pass) {
  if (!why_not_.empty() || (warm_ups_ == kWarmUps && !has_shape(batch))) return pass();
  const DrawWatch draws(runtime_->device());
  Expected<PassResults> done = pass();
  if (!done) return done;
  if (!has_shape(batch)) {
    warm_ups_ = 0;
    warm_ = {};
    input_shape_ = batch.input.sizes().vec();
    target_shape_ = batch.target.sizes().vec();
  }
  warm_ups_ = std::min(warm_ups_ + 1, kWarmUps);
  warm_[index_of(counts_hits)] = true;
  if (draws.drew())
    give_up("model '" + model_ + "' draws random numbers, and a replay would draw the same again");
  return done;
}

Expected<PassResults> StepGraphs::replay(const PassInputs& inputs, bool z_is_fixed,
                                         bool counts_hits, const Run& run) {
  const at::NoGradGuard no_grad;
  if (!inputs_.z.defined()) take_memory(inputs, z_is_fixed);
  copy_inputs(inputs);
  const std::unique_ptr<DeviceGraph>& graph = graphs_[index_of(counts_hits)];
  if (!graph) {
    if (const Expected<void> captured = capture(counts_hits, run); !captured)
      return captured.error();
  }
  graph->replay(Stream::compute);
  return results_;
}

void StepGraphs::take_memory(const PassInputs& inputs, bool z_is_fixed) {
  inputs_.z = z_is_fixed ? inputs.z : at::empty_like(inputs.z);
  inputs_.batch = {at::empty_like(inputs.batch.input), at::empty_like(inputs.batch.target)};
  results_.gradient = at::empty(inputs.z.sizes(), inputs.z.options());
  results_.figures = at::empty({kFigures}, inputs.z.options().dtype(at::kDouble));
  if (!inputs.buffers.defined()) return;
  inputs_.buffers = at::empty_like(inputs.buffers);
  results_.buffers = at::empty_like(inputs.buffers);
}

void StepGraphs::copy_inputs(const PassInputs& inputs) {
  copy_into(inputs_.z, inputs.z);
  copy_into(inputs_.buffers, inputs.buffers);
  copy_into(inputs_.batch.input, inputs.batch.input);
  copy_into(inputs_.batch.target, inputs.batch.target);
}

// What `run` leaves lies in memory of the capture, which graphs share: it is copied out within it.
Expected<void> StepGraphs::capture(bool counts_hits, const Run& run) {
  Expected<void> done;
  const auto work = [&] {
    const Expected<PassResults> pass = run(inputs_, results_.gradient);
    if (!pass) {
      done = pass.error();
      return;
    }
    GRAPEVINE_CHECK(pass->gradient.data_ptr() == results_.gradient.data_ptr(),
                    "a pass with its gradient elsewhere");
    results_.figures.copy_(pass->figures);
    if (results_.buffers.defined()) results_.buffers.copy_(pass->buffers);
  };
  try {
    auto graph = runtime_->capture(work);
    if (!done) return done;
    graphs_[index_of(counts_hits)] = std::move(graph);
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) throw;
    return Error{Errc::failed, "the pass through model '" + model_ +
                                   "' cannot be captured in a CUDA graph: " + one_line(e) +
                                   ": leave out --cuda-graphs"};
  }
  spdlog::info("{}: captured a CUDA graph of the forward and backward pass{}: steps replay it",
               name_, counts_hits ? ", with accuracies" : "");
  return {};
}

}  // namespace grapevine
