// FrozenTensor: the only tensor that a message may carry.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace grapevine {

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
// Thread-safe: any number of threads may read and copy one FrozenTensor; distinct FrozenTensors
// that share storage may be destroyed and thawed concurrently.
class FrozenTensor {
 public:
  FrozenTensor() = default;  // empty: defined() is false

  // Takes ownership without a copy where `t` is the only handle on its storage, contiguous, covers
  // the whole of it, requires no gradient, and the storage owns its memory; copies otherwise. A
  // view copies even where its base is gone: ATen keeps the base inside the view. Afterwards no
  // other handle can write the bytes, and nothing else is kept alive. Usable in any autograd or
  // inference mode; the result belongs to none. REQUIRES: defined, dense.
  static FrozenTensor freeze(at::Tensor&& t);
  static FrozenTensor copy_of(const at::Tensor& t);

  // Gives the bytes back as a mutable, contiguous tensor without autograd history: without a copy
  // where this was the last handle on the storage, as a copy otherwise. REQUIRES: defined(). Leaves
  // this empty.
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

  // Host pointer to the elements. REQUIRES: defined(), on the CPU, T is the dtype's C++ type.
  template <class T>
  const T* data() const {
    check_on_host();
    return static_cast<const T*>(tensor_.template data_ptr<T>());
  }
  // Pointer to the bytes on device(); may be null where numel() is 0. REQUIRES: defined().
  const void* raw() const;

  // A tensor for reading only: operand of ATen operations, source of a copy; undefined where this
  // is empty. Writing through it breaks the type's promise and is caught at the next access.
  const at::Tensor& read() const;

 private:
  // REQUIRES: `t` is no inference tensor (those have no version counter).
  explicit FrozenTensor(at::Tensor t);

  void check_untouched() const;
  void check_on_host() const;

  at::Tensor tensor_;
  std::int64_t version_ = 0;  // of tensor_ at freeze
};

}  // namespace grapevine
