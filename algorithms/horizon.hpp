// Horizon: the length of training.
#pragma once
#include "messages/ids.hpp"

namespace grapevine {

// Every rank takes `steps` steps; where ranks do not wait for each other (bilateral) this is their
// mean, and the fast ones take more.
struct Horizon {
  Step steps = 0;              // gradients of each rank, >= 0
  double steps_per_epoch = 1;  // > 0

  double epoch_of(Step step) const { return static_cast<double>(step) / steps_per_epoch; }
};

}  // namespace grapevine
