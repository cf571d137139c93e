// GradientParts: hands a gradient over part by part, while the backward pass still computes it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpu/compute.hpp"
#include "gpu/model/flat_params.hpp"
#include "messages/gradient.hpp"

namespace grapevine {

// One gradient, [d] float32 in the host's memory. The values that arrive are copied into the memory
// of their parts; a part that is complete, and all after it, is frozen and given away: nothing
// here can write to it afterwards.
//
// Not thread-safe.
class GradientParts {
 public:
  // REQUIRES: begins, of which the first is 0, and all are below d. `give` outlives this.
  GradientParts(Step step, PartBegins begins, std::int64_t d, const GivePart& give);

  // The values from element `begin` on, in any order, each element once.
  void add(std::int64_t begin, const at::Tensor& values);
  // Gives what is left but the first part, which it returns. REQUIRES: all elements were added.
  at::Tensor finish();

 private:
  struct Part {
    std::int64_t begin = 0, end = 0;
    std::int64_t missing = 0;  // elements
    at::Tensor values;         // undefined before the first one
  };

  void give_complete();
  void give(Part& part);

  // Constant after construction.
  const Step step_;
  const GivePart& give_;

  std::vector<Part> parts_;  // those that were not given yet
};

// A backward pass whose gradients go to `parts` as they are computed, where autograd::grad()
// returns all at its end. None stays in a parameter. Parameters that the loss does not reach have
// gradient zero, at the end. REQUIRES: no parameter has a gradient; all is in the host's memory, so
// that the pass runs on this thread.
void backward_in_parts(const at::Tensor& loss, const FlatTensors& parameters, GradientParts& parts);

}  // namespace grapevine
