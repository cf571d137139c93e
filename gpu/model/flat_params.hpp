// FlatTensors: a model's parameters, or its buffers, seen as one flat float32 tensor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/model/model.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// The order is that of Model::parameters() / Model::buffers(); each tensor takes its numel()
// consecutive elements, row-major. Shapes are remembered from the construction, so that the tensors
// may be unbound (emptied) in between. Holds handles on the model's tensors: the model must not
// replace them. Not thread-safe.
class FlatTensors {
 public:
  FlatTensors() = default;

  // Errors (bad_input): a model without trainable parameters, or with one that is not float32.
  static Expected<FlatTensors> of_parameters(Model& model);

  // Any dtype of real numbers: values are converted to float32 and back. Integers are exact up to
  // 2^24, which bounds batch-norm's num_batches_tracked (int64) to 16.7 million steps. Errors
  // (bad_input): a buffer of another dtype, or whose present values change on that way.
  static Expected<FlatTensors> of_buffers(Model& model);

  std::int64_t numel() const { return numel_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // The first element of a tensor.
  std::int64_t begin_of(std::size_t tensor) const { return offsets_.at(tensor); }

  // A copy of all values, [numel()] float32 on `device`. REQUIRES: not unbound.
  at::Tensor gather(at::Device device = at::kCPU) const;

  // Copies `flat` [numel()] into the tensors; tensors that were unbound get memory of their own.
  void scatter(const at::Tensor& flat);

  // Copies `parts`, one for each tensor from `first` on, into `flat`, which has the elements of
  // these tensors; undefined parts give zeros. REQUIRES: each defined part has the numel of its
  // tensor.
  void pack(const std::vector<at::Tensor>& parts, at::Tensor& flat, std::size_t first = 0) const;
  // The same, added to what `flat` has.
  void add(const std::vector<at::Tensor>& parts, at::Tensor& flat, std::size_t first = 0) const;

  // Gives the tensors memory on `device`, with their present values.
  void move_to(at::Device device);

  // Makes each tensor a view of `flat` [numel()] float32, without a copy.
  void bind(const at::Tensor& flat);
  // Leaves each tensor empty: no handle on what was bound survives.
  void unbind();

  // Whether all tensors begin at a multiple of so many bytes where `flat` does, once bound.
  bool aligned(std::int64_t bytes) const;
  // For kernels that want another layout than views of a flat tensor have: gives the tensors memory
  // of their own on `device`, with their present values, and those of four dimensions
  // (convolutions' weights) lie as `images` says. From then on bind() copies into that memory,
  // which unbind() leaves as it is.
  void keep(at::Device device, at::MemoryFormat images);

 private:
  explicit FlatTensors(const std::vector<NamedTensor>& named);

  std::vector<at::Tensor> tensors_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::int64_t> offsets_;
  std::int64_t numel_ = 0;
  bool kept_ = false;  // memory of their own
};

// While it lives, the model's parameters are z: views of it, or copies where they keep memory of
// their own. Afterwards no handle on z is left in them, so that z.sole_owner() holds again for the
// last holder of z. REQUIRES: z is [parameters.numel()]
// float32, no code writes through the parameters, and no autograd graph over them outlives this.
class BoundParameters {
 public:
  BoundParameters(FlatTensors& parameters, const FrozenTensor& z);
  // The same for a copy of z on a device, which stays unchanged as long as this lives.
  BoundParameters(FlatTensors& parameters, const at::Tensor& z);
  ~BoundParameters();
  BoundParameters(const BoundParameters&) = delete;
  BoundParameters& operator=(const BoundParameters&) = delete;

 private:
  FlatTensors& parameters_;
};

// Copies z [d] and `buffers` [b] into the model, e.g. to save it. `buffers` may be undefined: the
// model keeps its own. Errors (bad_input) name both sizes.
Expected<void> load_flat(Model& model, const FrozenTensor& z, const FrozenTensor& buffers);

}  // namespace grapevine
