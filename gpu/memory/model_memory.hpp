// ModelMemory: pinned memory for models that their ranks keep in the host's memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

#include "gpu/memory/staging.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// A GPU copies from pinned memory without the host: a z that lies here is uploaded from where it
// lies (gpu/memory/transfers.hpp). A rank's first model comes here by adopt(), and its successors
// follow, as new vectors of a model are allocated beside the old ones (messages/tensor_memory.hpp,
// empty_successor); the roles know nothing of it.
//
// One for all ranks of a process, as ranks pass models to each other by reference: any GPU of the
// process copies from any memory here. Beyond the limit, and where pages cannot be locked, new
// tensors lie in ordinary memory; their successors are tried here again. Freed blocks are kept for
// the next model.
//
// Thread-safe. Tensors keep what they need of it alive.
class ModelMemory : public std::enable_shared_from_this<ModelMemory> {
 public:
  // `allocate`: of pinned memory, as DeviceRuntime::pinned_memory, called from any thread.
  static std::shared_ptr<ModelMemory> make(StagingPool::Allocate allocate, std::size_t limit_bytes);

  // Uninitialised, on the CPU.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype);

  // The same values: `t` itself where it is undefined, on a device or of a ModelMemory, pinned or
  // not, and where a transport has send memory, which comes first; else a tensor of this memory.
  // That is a copy, but where nothing can be pinned and there is no other handle on `t`.
  FrozenTensor adopt(FrozenTensor t);
  // The same for a tensor on the CPU of no TensorMemory, whatever a transport has; it is consumed.
  at::Tensor adopt(at::Tensor t);
  // A copy of the values of `t`, on any device: here, or, where a transport has send memory, in
  // ordinary memory.
  FrozenTensor copy_of(const at::Tensor& t);

  // Overflows: tensors that lie in ordinary memory instead.
  StagingPool::Usage usage() const { return pool_.usage(); }

 private:
  ModelMemory(StagingPool::Allocate allocate, std::size_t limit_bytes)
      : pool_(std::move(allocate), limit_bytes) {}

  at::Tensor as_block(at::Tensor memory, bool pinned);

  StagingPool pool_;
};

// Whether `t`, or the tensor that it is a view of, lies in pinned memory of a ModelMemory.
bool is_pinned_model(const at::Tensor& t);

}  // namespace grapevine
