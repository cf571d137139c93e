// Memory of tensors that a transport owns: shared with other processes, or sent as it lies.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
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
  // Uninitialised memory of the same kind, for a successor of a tensor here; undefined: any memory
  // serves. Thread-safe.
  virtual at::Tensor allocate_like(at::IntArrayRef /*sizes*/, at::ScalarType /*dtype*/) const {
    return {};
  }
  // `t`, of ordinary memory, as a successor of a tensor here: its values in memory of the same kind
  // if there is some, else `t` itself, of which the successors are tried again. Consumes `t`.
  // Thread-safe.
  virtual at::Tensor adopt(at::Tensor t) const;
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
  // Of a part that is lent: whether the tensor that it is a part of lies here.
  virtual bool owns(const at::Tensor& t) const = 0;
  // Learns which tensors the readers of other processes have released.
  virtual void collect() {}
};

// What empty_to_send() takes from, from now on; null: the heap. Held by the caller.
void use_send_memory(const std::shared_ptr<SendMemory>& memory);

// An uninitialised tensor whose values will be sent: in send memory where a transport has some,
// else on the heap. Small tensors, which every transport copies, are always on the heap. On another
// device than the CPU: in its memory.
at::Tensor empty_to_send(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device = at::kCPU);

// Whether a transport of this process has send memory.
bool has_send_memory();

// An uninitialised tensor of the dtype and on the device of `like`, for values that succeed those
// of `like`, as the next version of a model: in memory of the same kind (allocate_like), so that
// all versions of a model lie in one kind of memory. Any other tensor, and all where a transport
// has send memory, are from empty_to_send(): a share that is sent where it lies saves a copy for
// each receiver.
at::Tensor empty_successor(const FrozenTensor& like, at::IntArrayRef sizes);

// `t`, frozen, as the successor of `like`: where it lies in ordinary memory and `like` does not,
// adopted by the memory of `like`. Consumes `t`.
FrozenTensor frozen_successor(const FrozenTensor& like, at::Tensor&& t);

// The values of `t`, flat or not, in memory from empty_to_send(), on its device.
at::Tensor copy_to_send(const at::Tensor& t);
FrozenTensor frozen_to_send(const at::Tensor& t);

// The parts of tensors that are sent where they lie while their owner still writes other parts of
// the same memory. Thread-safe are the parts, not this object.
class LentParts {
 public:
  // `values`, contiguous, a part of a tensor whose memory the caller alone writes, as a frozen
  // tensor: on that memory where a transport sends from there, else a copy (of small ones, and on
  // devices). Until take_back() the caller must not write it. REQUIRES: `part` is not lent.
  FrozenTensor lend(std::int64_t part, const at::Tensor& values);
  // True: no handle on the part is left in any process, or it was never lent; `values` may be
  // written. False: it is still being read.
  bool take_back(std::int64_t part);
  // Forgets all parts. Those that are being read keep their memory.
  void clear() { lent_.clear(); }

 private:
  std::map<std::int64_t, std::shared_ptr<std::atomic<bool>>> lent_;  // the flag: it was released
};

// The tensor that `t` is a lent part of; `t` where it is none.
const at::Tensor& owner_of_part(const at::Tensor& t);

// Whether sending it saves no copy over sending a new tensor: it lies in send memory, or there is
// none.
bool is_sent_in_place(const FrozenTensor& t);

}  // namespace grapevine
