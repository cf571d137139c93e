// Model: a network whose parameters the engine can see as one flat tensor. The built-in ones live
// in apps/zoo/models; any TorchScript file is one too.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Not thread-safe: each worker owns one.
class Model {
 public:
  virtual ~Model() = default;
  virtual std::vector<NamedTensor> parameters() = 0;  // float32, in a fixed order, handles
  virtual std::vector<NamedTensor> buffers() = 0;     // batch-norm statistics…, in a fixed order
  // Further names of these, which files of weights have as well: of tied parameters.
  virtual std::vector<NamedTensor> other_names() { return {}; }
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  virtual void train(bool on) = 0;
  // Writes the model with its present parameters to `path` (not atomic: callers write to a
  // temporary name). TorchScript models: torch.jit.load reads it; others: torch.load gives a dict
  // of tensors.
  virtual Expected<void> save(const std::string& path) = 0;
};

// Makes a freshly initialised model; equal seeds give equal parameters. Called from one thread at a
// time.
using ModelFactory = std::function<Expected<std::unique_ptr<Model>>(std::uint64_t seed)>;

}  // namespace grapevine
