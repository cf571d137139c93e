// Memory for received tensors: the memory of a released tensor is reused.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/codec.hpp"

namespace grapevine {

// The first touch of fresh memory costs as much as moving the bytes into it; messages of a training
// run have few sizes, so that recycled memory nearly always fits. Thread-safe; tensors may outlive
// the pool.
class ReceivePool {
 public:
  // Keeps at most `keep_bytes` of unused memory; the least recently used is freed first.
  explicit ReceivePool(std::uint64_t keep_bytes);

  // As allocate_payload() of messages/codec.hpp: uninitialised, one per descriptor. Throws where
  // memory runs out.
  std::vector<at::Tensor> allocate(const DecodedHeader& header);
  // The same of one of them, which may be absent.
  at::Tensor allocate(const TensorDescriptor& tensor);

 private:
  class Store;
  class Block;

  std::shared_ptr<Store> store_;
};

}  // namespace grapevine
