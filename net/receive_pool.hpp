// Memory for received tensors: the memory of a released tensor is reused.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
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

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  class Store {
   public:
    explicit Store(std::uint64_t keep_bytes) : keep_bytes_(keep_bytes) {}
    ~Store();
    Block take(std::size_t bytes);
    void give_back(Block block);

   private:
    const std::uint64_t keep_bytes_;
    std::mutex mutex_;
    std::list<Block> kept_;  // guarded by mutex_; most recently used first
    std::uint64_t kept_bytes_ = 0;
  };

  std::shared_ptr<Store> store_;
};

}  // namespace grapevine
