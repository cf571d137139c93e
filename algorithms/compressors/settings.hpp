// How a wiring compresses what it exchanges: a value, read from its keys, made into parts by
// compressor.hpp, error_feedback.hpp and collectives/reduction.hpp.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "algorithms/kernels/value_type.hpp"
#include "algorithms/keys.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

// How the ranks of an aggregate add up sparse vectors.
enum class SparseReduce {
  all_gather,           // the sum of all lists
  all_gather_reselect,  // the k largest entries of that sum
  butterfly,            // merge and reselect pairwise, by recursive doubling
  tree                  // the same up a tree, and the result down again
};

// How the ranks add up vectors that are not compressed.
enum class ExactReduce {
  ring,      // around a ring: algorithms/collectives/ring_all_reduce.hpp
  direct,    // each sends to all others: algorithms/collectives/direct_all_reduce.hpp
  doubling,  // by pairs, pairs of pairs, …: algorithms/collectives/recursive_doubling.hpp
  automatic  // by ranks and size: algorithms/collectives/exact_reduction.hpp
};

struct CompressionSettings {
  std::string name = "none";  // see compressor_names()
  DensitySchedule density;    // of sparse compressors
  // top-k: a threshold from a sample instead of exactly k. Between k/2 and 3k/2 entries are sent:
  // to cut at k would take the selection among candidates that the sample is to save.
  bool sampled = false;
  // Sparse compressors: the density holds for each layer by itself. `layers` are the sizes of the
  // model's parameter tensors, in their order; none: all parameters are one layer.
  bool per_layer = false;
  std::vector<std::int64_t> layers = {};
  ValueType value_type = ValueType::f32;  // of sparse compressors
  bool error_feedback = true;             // values that were not sent are kept and sent later
  double residual_decay = 1;              // of what is kept, before each vector is added; in (0, 1]
  bool momentum_correction = false;  // momentum before compression, with the optimizer's factor
  bool momentum_masking = true;      // with it: entries that were sent lose their momentum
  SparseReduce reduce = SparseReduce::all_gather;
  ExactReduce exact = ExactReduce::ring;
  double consensus_step = 1;               // gossip of differences: gamma, in (0, 1]
  std::map<std::string, double> own = {};  // of a compressor from outside: the keys that it read

  bool enabled() const { return name != "none"; }
};

// Which keys of the compression a role has a use for.
struct CompressionUse {
  bool sums = false;          // it adds up the vectors of all ranks
  bool momentum = false;      // it compresses gradients before the optimizer's momentum
  bool mixes = false;         // it mixes models by the differences that arrive
  bool whole_models = false;  // it sends models, of which nothing may be left out
};
CompressionSettings read_compression(KeyReader& keys, const CompressionUse& use);

}  // namespace grapevine
