// Memory of tensors that a transport owns: shared with other processes, or sent as it lies.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// The owner of a tensor's memory; destroyed with the last handle on the tensor, on any thread.
class TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  // False: others may read the memory, so that FrozenTensor::thaw() copies it even for the last
  // handle of this process.
  virtual bool exclusive() const = 0;
};

// A contiguous tensor on the CPU whose memory begins at `data`.
at::Tensor tensor_on(void* data, at::IntArrayRef sizes, at::ScalarType dtype,
                     std::unique_ptr<TensorMemory> memory);
// Null where the tensor was not made by tensor_on().
TensorMemory* memory_of(const at::Tensor& t);

// Memory from which a transport of this process sends without a copy. Thread-safe.
class SendMemory {
 public:
  virtual ~SendMemory() = default;
  // Uninitialised; undefined where there is no memory left.
  virtual at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype) = 0;
  virtual bool owns(const at::Tensor& t) const = 0;
};

// What empty_to_send() takes from, from now on; null: the heap. Held by the caller.
void use_send_memory(const std::shared_ptr<SendMemory>& memory);

// An uninitialised tensor whose values will be sent: in send memory where a transport has some,
// else on the heap. Small tensors, which every transport copies, are always on the heap. On another
// device than the CPU: in its memory.
at::Tensor empty_to_send(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device = at::kCPU);

// The values of `t`, flat or not, in memory from empty_to_send(), on its device.
FrozenTensor frozen_to_send(const at::Tensor& t);

// Whether sending it saves no copy over sending a new tensor: it lies in send memory, or there is
// none.
bool is_sent_in_place(const FrozenTensor& t);

}  // namespace grapevine
