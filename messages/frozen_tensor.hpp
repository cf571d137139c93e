// FrozenTensor: the only tensor that a message may carry.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace grapevine {

class DeviceUse;

// An immutable, owning, contiguous tensor. Copies share the bytes, which cannot be written:
// no mutable handle exists while the tensor is frozen: it is made by taking the last handle
// (freeze) or by copying (copy_of), and becomes mutable again only by giving up the last frozen
// handle (thaw).
//
// CAF's copy-on-write is shallow for tensors: two holders of one message share the storage. This
// type makes that sharing safe.
//
// ATen cannot express a read-only handle, so read() can be abused. Every writing ATen operation
// bumps the storage's version counter; each access here checks that it is the same as at
// freeze, and throws InvariantBroken otherwise. Writes through a raw pointer are not seen.
//
// On a device with streams the bytes are written by the work that the freezing thread's current
// stream held at freeze. read() makes the reader's stream wait for it, thaw() makes its own stream
// wait for all readers, and the end of the last handle leaves the memory to the device's allocator
// until they are done. The host never waits. Work in streams that reads after the reader's handle
// has ended is not covered.
//
// Thread-safe: any number of threads may read and copy one FrozenTensor; distinct FrozenTensors
// that share storage may be destroyed and thawed concurrently.
class FrozenTensor {
 public:
  FrozenTensor() = default;  // empty: defined() is false

  // Takes ownership without a copy where `t` is the only handle on its storage, contiguous, covers
  // the whole of it, requires no gradient, and the storage owns its memory; copies otherwise. A
  // view copies even where its base is gone: ATen keeps the base inside the view. Afterwards no
  // other handle can write the bytes, and nothing else is kept alive. Usable in any autograd or
  // inference mode; the result belongs to none. On a device: of the values that this thread's
  // current stream has written. REQUIRES: defined, dense; work in other streams that wrote `t` has
  // been awaited by this thread's current stream, and none writes it afterwards.
  static FrozenTensor freeze(at::Tensor&& t);
  static FrozenTensor copy_of(const at::Tensor& t);

  // Gives the bytes back as a mutable, contiguous tensor without autograd history: without a copy
  // where this was the last handle on the storage, as a copy otherwise, which lies in memory of the
  // same kind (messages/tensor_memory.hpp, allocate_like). REQUIRES: defined(). Leaves this empty.
  // On a device: for work in this thread's current stream.
  at::Tensor thaw() &&;

  bool defined() const { return tensor_.defined(); }
  std::int64_t numel() const { return tensor_.defined() ? tensor_.numel() : 0; }
  std::uint64_t nbytes() const { return tensor_.defined() ? tensor_.nbytes() : 0; }
  // REQUIRES of these three: defined().
  at::ScalarType dtype() const { return tensor_.scalar_type(); }
  at::IntArrayRef sizes() const { return tensor_.sizes(); }
  at::Device device() const { return tensor_.device(); }

  // True where this is the only handle: thaw() would not copy.
  bool sole_owner() const;
  // True where thaw() would neither copy nor make this thread's current stream wait: no other
  // stream has used the bytes. On the CPU the same as sole_owner().
  bool thaws_at_once() const;

  // Host pointer to the elements. REQUIRES: defined(), on the CPU, T is the dtype's C++ type.
  template <class T>
  const T* data() const {
    check_on_host();
    return static_cast<const T*>(tensor_.template data_ptr<T>());
  }
  // Pointer to the bytes on device(); may be null where numel() is 0. REQUIRES: defined().
  const void* raw() const;

  // A tensor for reading only: operand of ATen operations, source of a copy; undefined where this
  // is empty. Writing through it breaks the type's promise and is caught at the next access. On a
  // device: for work in this thread's current stream of that device.
  const at::Tensor& read() const;
  // The same for work in this thread's current stream of `reader`, another device.
  const at::Tensor& read_on(at::Device reader) const;

  // The same values on `device`: this where they are there, else a copy by this thread's current
  // stream, for which the host may wait; a copy to the host's memory is complete.
  FrozenTensor on(at::Device device) const;
  FrozenTensor on_host() const { return on(at::kCPU); }

 private:
  // REQUIRES: `t` is no inference tensor (those have no version counter).
  explicit FrozenTensor(at::Tensor t);

  void check_untouched() const;
  void check_on_host() const;

  at::Tensor tensor_;
  std::int64_t version_ = 0;        // of tensor_ at freeze
  std::shared_ptr<DeviceUse> use_;  // null on the CPU; shared by all handles on the storage
};

}  // namespace grapevine
