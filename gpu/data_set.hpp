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

struct DataInfo {
  std::string name;
  Task task = Task::classification;
  std::vector<std::int64_t> sample_shape;  // e.g. {1, 28, 28}, without the batch dimension
  std::int64_t classes = 0;                // classification: number of classes; regression: outputs
  std::int64_t train_size = 0;
  std::int64_t test_size = 0;
  bool slow = false;  // decoding a batch costs about as much as computing on it: prefetch it
};

struct Batch {
  at::Tensor input;   // [B, sample_shape...] float32
  at::Tensor target;  // classification: [B] int64; regression: [B, outputs] float32
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
