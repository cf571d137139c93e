// DeviceMemory: a device's memory, as a transport that can read and write it sees it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Of the one device on which the ranks of this process keep their models. A transport reads and
// writes the memory itself, in no stream: what it reads has been awaited by the host, and nothing
// uses the memory that it writes. All calls come from one thread of the transport.
class DeviceMemory {
 public:
  enum class Kind { host, cuda };  // host: for tests without a device

  virtual ~DeviceMemory() = default;
  virtual Kind kind() const = 0;
  // While the result lives, calls of the driver by this thread are for the device, and tensors that
  // it freezes are complete. May throw.
  virtual std::shared_ptr<void> enter() = 0;
  virtual bool contains(const FrozenTensor& t) const = 0;
  // Uninitialised memory for a vector that arrives for the local rank `to`. Undefined where it is
  // to be received in the host's memory. REQUIRES: inside enter().
  virtual at::Tensor allocate(Rank to, at::IntArrayRef sizes, at::ScalarType dtype) = 0;
};

// The tensor of a payload that has this one and no other; null: there are none or several, or it
// has no elements. Only such a tensor is sent from a device's memory.
inline const FrozenTensor* only_tensor(const std::vector<FrozenTensor>& payload) {
  const FrozenTensor* only = nullptr;
  for (const FrozenTensor& t : payload) {
    if (!t.defined()) continue;
    if (only != nullptr) return nullptr;
    only = &t;
  }
  return only != nullptr && only->nbytes() > 0 ? only : nullptr;
}

}  // namespace grapevine
