// The messages between a Peer and its GpuWorker. They share an address space: tensors are moved,
// never serialized.
#pragma once
#include <cstdint>
#include <string>

#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Ask for the gradient of the batch of `step` at parameters `z`.
struct GradientRequest {
  Step step = 0;
  FrozenTensor z;         // [d], de-biased parameters
  FrozenTensor buffers;   // [b], batch-norm statistics and the like; empty where the model has none
  FrozenTensor recycled;  // optional [d]: memory for the result, so that a step allocates nothing
};

// REQUIRES: the producer has dropped z, so that the Peer can thaw its own handle.
struct Gradient {
  Step step = 0;
  FrozenTensor value;    // [d], mean over the batch
  FrozenTensor buffers;  // [b] after the batch
  double loss = 0;       // mean over the batch
  double top1 = 0;       // fraction in [0, 1]; NaN for regression
  double top5 = 0;       // fraction in [0, 1]; NaN for regression or fewer than 5 classes
  std::int64_t samples = 0;
  std::int64_t length = 0;     // time steps of the batch; 0 where its samples have no length
  double data_seconds = 0;     // waiting for the batch
  double compute_seconds = 0;  // forward and backward
  std::string error;           // not empty: the computation failed, nothing else is valid
};

}  // namespace grapevine
