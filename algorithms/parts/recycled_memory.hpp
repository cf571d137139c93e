// RecycledMemory: memory of sums and gradients that are sent. It is used again once its last reader
// has finished.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

namespace grapevine {

// The first touch of fresh memory costs as much as moving the bytes into it. In one process a
// receiver reads the sender's memory, and may write it (FrozenTensor::thaw) and send it on. So the
// sender, which keeps no handle, cannot see when it is free: the memory returns with the last
// handle on its tensor, on whichever thread that ends.
//
// It keeps no more blocks than were in use at one time. Tensors on devices, small ones and all
// those where a transport has send memory are from empty_to_send(): that memory recycles its blocks
// itself, but for tensors that are too small for it or come when it is full.
//
// Copies share the memory. Thread-safe; tensors may outlive it.
class RecycledMemory {
 public:
  RecycledMemory();

  // Uninitialised, of the sizes and dtype and on the device of `like`, for values that are sent.
  at::Tensor take(const at::Tensor& like) const;
  // The values of `t`, contiguous, in such memory.
  at::Tensor copy_of(const at::Tensor& t) const;

 private:
  class Store;
  class Block;

  std::shared_ptr<Store> store_;
};

}  // namespace grapevine
