// The messages between a Peer and its GpuWorker. They share an address space: tensors are moved,
// never serialized.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Which batches a rank takes of the sequence that all ranks share: as many in each step as there
// are ranks, one each.
struct Deal {
  std::int32_t ranks = 0;        // that share them; 0: those with which training began
  std::int32_t position = 0;     // of this rank among them
  std::int64_t first_batch = 0;  // that of position 0 in first_step
  Step first_step = 0;           // of this rank, with which the deal begins

  std::int64_t batch_of(Step step) const {
    return first_batch + (step - first_step) * ranks + position;
  }
  bool operator==(const Deal& other) const {
    return ranks == other.ranks && position == other.position && first_batch == other.first_batch &&
           first_step == other.first_step;
  }
};

// Where the parts of a gradient of d elements begin: increasing, from 0, below d. Null: it has
// none.
using PartBegins = std::shared_ptr<const std::vector<std::int64_t>>;

// Ask for the gradient of the batch of `step` at parameters `z`.
struct GradientRequest {
  Step step = 0;
  FrozenTensor z;         // [d], de-biased parameters
  FrozenTensor buffers;   // [b], batch-norm statistics and the like; empty where the model has none
  FrozenTensor recycled;  // optional [d]: memory for the result, so that a step allocates nothing
  Deal deal = {};         // to which `step` belongs
  // In which the gradient may be handed over while it is still computed.
  PartBegins parts = nullptr;
};

// A part of a gradient that is complete while the elements before it are still computed. Parts are
// handed over from the end of the gradient on, none is left out, and the first stays for Gradient:
// a gradient never counts as given before it is complete.
struct GradientPart {
  Step step = 0;
  std::int64_t begin = 0;  // one of GradientRequest::parts, above 0
  FrozenTensor value;      // as far as the part that went before it, or the end
};

// REQUIRES: the producer has dropped z, so that the Peer can thaw its own handle.
struct Gradient {
  Step step = 0;
  FrozenTensor value;    // [d], mean over the batch; where parts have gone ahead: what is left
  FrozenTensor buffers;  // [b] after the batch
  double loss = 0;       // mean over the batch
  double top1 = 0;       // fraction in [0, 1]; NaN for regression
  double top5 = 0;       // fraction in [0, 1]; NaN for regression or fewer than 5 classes
  std::int64_t samples = 0;
  std::int64_t length = 0;     // time steps of the batch; 0 where its samples have no length
  double data_seconds = 0;     // waiting for the batch
  double compute_seconds = 0;  // forward and backward
  // In which the worker's GPU has worked, for whatever rank, since its last gradient; of several
  // GPUs the mean. NaN: not measured, as on the CPU.
  double device_seconds = std::numeric_limits<double>::quiet_NaN();
  std::string error;  // not empty: the computation failed, nothing else is valid
};

}  // namespace grapevine
