// How a wiring compresses what it exchanges: a value, read by wiring.cpp, made into parts by
// compressor.hpp, error_feedback.hpp and collectives/reduction.hpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/kernels/value_type.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

// How the ranks of an aggregate add up sparse vectors.
enum class SparseReduce {
  all_gather,           // the sum of all lists
  all_gather_reselect,  // the k largest entries of that sum
  butterfly,            // merge and reselect pairwise, by recursive doubling
  tree                  // the same up a tree, and the result down again
};

struct CompressionSettings {
  std::string name = "none";  // see compressor_names()
  DensitySchedule density;    // top-k, random-k
  // top-k: a threshold from a sample instead of exactly k. Between k/2 and 3k/2 entries are sent:
  // to cut at k would take the selection among candidates that the sample is to save.
  bool sampled = false;
  // top-k, random-k: the density holds for each layer by itself. `layers` are the sizes of the
  // model's parameter tensors, in their order; none: all parameters are one layer.
  bool per_layer = false;
  std::vector<std::int64_t> layers = {};
  ValueType value_type = ValueType::f32;  // top-k, random-k
  bool error_feedback = true;             // what was not sent is kept and sent later
  bool momentum_correction = false;  // momentum before compression, with the optimizer's factor
  bool momentum_masking = true;      // with it: entries that were sent lose their momentum
  SparseReduce reduce = SparseReduce::all_gather;
  double consensus_step = 1;  // gossip: gamma, in (0, 1]

  bool enabled() const { return name != "none"; }
};

// Gradient clipping by the L2 norm, for aggregates.
struct ClipSettings {
  double norm = 0;     // c; 0: none
  bool at_sum = true;  // the mean of all ranks to c; else each rank's own to c / sqrt(P)
};

}  // namespace grapevine
