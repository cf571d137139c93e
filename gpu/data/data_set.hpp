// DataSet: where batches come from. The built-in ones live in apps/zoo/data.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

enum class Task { classification, regression };
enum class Split { train, test };

// A side of a sample that differs from sample to sample.
inline constexpr std::int64_t kTimeSteps = -1;

struct DataInfo {
  std::string name;
  Task task = Task::classification;
  // Without the batch dimension, e.g. {1, 28, 28}; {kTimeSteps, features} for sequences.
  std::vector<std::int64_t> sample_shape;
  std::int64_t classes = 0;  // classification: number of classes; regression: outputs
  std::int64_t train_size = 0;
  std::int64_t test_size = 0;
  bool slow = false;  // decoding a batch costs about as much as computing on it: prefetch it
  // The samples are sequences, shortest first: a batch takes neighbours, so that it pads little and
  // its time varies with their length.
  bool by_length = false;
  // More than 0: samples are numbers of tokens, 0 .. vocabulary - 1, held as floats.
  std::int64_t vocabulary = 0;
  // Classification: of the labels of a sample; {} where it has one, {T} with one at each of T
  // steps.
  std::vector<std::int64_t> target_shape;
  std::vector<std::string> class_names;  // empty: not known
  std::vector<float> black;              // of images: its value in each channel; empty: 0
};

struct Batch {
  // [B, sample_shape...] float32. Sequences: [B, T, features], T steps in the longest of them; the
  // last feature is 1 at a sample's own steps and 0, as all others are, in the padding behind them.
  at::Tensor input;
  // Classification: [B, target_shape...] int64; regression: [B, outputs] float32.
  at::Tensor target;
};

// Thread-safe after construction: several workers and prefetch threads share one DataSet.
class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual const DataInfo& info() const = 0;
  // The samples with these indices (0 .. size of the split - 1), in this order. `augment_seed` 0:
  // no augmentation; otherwise the random crops and flips are a pure function of it and the index.
  // Errors name the file, the byte and what was expected.
  virtual Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                                std::uint64_t augment_seed) const = 0;
};

}  // namespace grapevine
