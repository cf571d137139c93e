// DeviceReceives: memory on the GPU of this process's ranks, for what a transport receives.
#pragma once
#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "net/device_memory.hpp"

namespace grapevine {

// Allocates in a stream in which nothing runs. LibTorch's allocator gives out memory that earlier
// work of the stream may still use, as all later work of the stream would run after that; but a
// transport writes in no stream. Readers in other streams are no concern: the allocator knows them
// (messages/frozen_tensor.hpp), and takes the memory back once their work has run. Streams of the
// pool can have a second user, however, so each piece is given out only after the host has waited
// for the stream; where that takes longer than a moment, the message is received in the host's
// memory instead, as it is where the device has no memory left.
class DeviceReceives final : public DeviceMemory {
 public:
  // `device` has streams for this object alone; `on_device` by rank: its model is there.
  DeviceReceives(std::shared_ptr<DeviceRuntime> device, Kind kind, std::vector<bool> on_device);

  Kind kind() const override { return kind_; }
  std::shared_ptr<void> enter() override { return device_->enter(Stream::upload); }
  bool contains(const FrozenTensor& t) const override { return t.device() == device_->device(); }
  at::Tensor allocate(Rank to, at::IntArrayRef sizes, at::ScalarType dtype) override;

 private:
  const std::shared_ptr<DeviceRuntime> device_;
  const Kind kind_;
  const std::vector<bool> on_device_;
};

// For the ranks of this process, by the devices of their models; null: a rank in the host's memory,
// or of another process. Null where they have no CUDA device, or several: UCX before 1.19 serves
// one context. Errors: open_device()'s.
Expected<std::shared_ptr<DeviceMemory>> memory_for_receives(
    const std::vector<std::shared_ptr<DeviceRuntime>>& devices);

}  // namespace grapevine
