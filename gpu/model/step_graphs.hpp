// StepGraphs: forward and backward passes that a device captures once and then replays, so that the
// host launches one graph instead of each operation.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/device.hpp"
#include "gpu/model/graphs_notice.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// What a pass reads, on the device.
struct PassInputs {
  at::Tensor z;        // [d], or more
  at::Tensor buffers;  // [b]; undefined where the model has none
  Batch batch;
};

// What a forward and backward pass leaves on the device.
struct PassResults {
  at::Tensor gradient;  // [d], or what is left of it
  at::Tensor buffers;   // [b]; undefined where the model has none
  at::Tensor figures;   // [4] float64: loss, top1, top5, whether the gradient is finite
};

// A replay reads and writes the addresses of the capture. So the batch and the buffers are copied
// into fixed memory before it, on the device, and z where its own place changes from step to step;
// the results lie in fixed memory, too.
//
// Until kWarmUps passes in a row had batches of one shape, passes are computed without a graph, and
// are ordinary steps: libraries choose and load their kernels in them. The next one is captured.
// Steps with the accuracies among their figures, and those without, have a graph each, which is
// captured after one pass of its kind. Where no pass has been replayed by the end, or after the
// first kPatience passes, the notice has a line as well.
//
// Passes over batches of other shapes are never replayed. Neither are those of a model that draws
// random numbers: the generator of a step (gpu/model/step_generator.hpp) is seeded by the host
// before each pass, and a graph would draw the numbers of the captured step again. All calls are in
// the compute stream. Not thread-safe.
class StepGraphs {
 public:
  static constexpr int kWarmUps = 3;
  static constexpr int kPatience = 100;

  // Computes a pass over the inputs, with its gradient in the given memory.
  using Run = std::function<Expected<PassResults>(const PassInputs& inputs, at::Tensor gradient)>;

  // `name`, `model`: for messages. `why_not`: why nothing is captured; empty: all that can be.
  // `last_step`: the steps of the run; 0: not known. `notice`: takes the reasons of all workers.
  StepGraphs(std::shared_ptr<DeviceRuntime> runtime, std::string name, std::string model,
             std::string why_not, Step last_step, std::shared_ptr<GraphsNotice> notice);

  // Whether the pass of `step`, over `batch`, is to be replayed, else watched. Once for each step.
  // The notice has a line with the reason where none ever is.
  bool replays(const Batch& batch, bool counts_hits, Step step);

  // Computes a pass that is not replayed.
  Expected<PassResults> watched(const Batch& batch, bool counts_hits,
                                const std::function<Expected<PassResults>()>& pass);

  // Captures the pass at first, by `run`, and replays it. The results stay as they are until the
  // next call; their memory is fixed. `z_is_fixed`: inputs.z has one address in all steps.
  // REQUIRES: replays(). Errors: run()'s; failed where the pass cannot be captured.
  Expected<PassResults> replay(const PassInputs& inputs, bool z_is_fixed, bool counts_hits,
                               const Run& run);

 private:
  bool has_shape(const Batch& batch) const;
  void give_up(const std::string& why);
  void count_eager_pass(Step step);
  void take_memory(const PassInputs& inputs, bool z_is_fixed);
  void copy_inputs(const PassInputs& inputs);
  Expected<void> capture(bool counts_hits, const Run& run);

  // Constant after construction.
  const std::shared_ptr<DeviceRuntime> runtime_;
  const std::string name_;
  const std::string model_;
  const Step last_step_;
  const std::shared_ptr<GraphsNotice> notice_;

  std::string why_not_;
  bool said_why_not_ = false;
  bool said_other_shape_ = false;
  int eager_passes_ = 0;  // until the first one that is replayed, at most kPatience
  std::vector<std::int64_t> input_shape_, target_shape_;  // of the last warm-up
  int warm_ups_ = 0;                                      // in a row, of that shape
  std::array<bool, 2> warm_ = {};  // whether one was without, with accuracies
  // Of the graphs; empty until the first capture.
  PassInputs inputs_;
  PassResults results_;
  std::array<std::unique_ptr<DeviceGraph>, 2> graphs_;  // without and with accuracies
};

}  // namespace grapevine
