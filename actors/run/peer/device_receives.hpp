// DeviceReceives: memory on the GPU of this process's ranks, for what a transport receives.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "net/device_memory.hpp"

namespace grapevine {

// Allocates in a stream in which nothing runs. LibTorch's allocator gives out memory that earlier
// work of the stream may still use, as all later work of the stream would run after that; but a
// transport writes in no stream. Readers in other streams are no concern: the allocator knows them
// (messages/frozen_tensor.hpp), and takes the memory back once their work has run. Streams of the
// pool can have a second user, however, so each piece is given out only after the host has waited
// for the stream; where that takes too long, the message is received in the host's memory instead,
// as it is where the device has no memory left. Both tries are expensive: before it fails,
// LibTorch's allocator waits for the device and frees its cache, and the thread serves all links.
// After a failure the next messages are therefore received in the host's memory without a try:
// twice as many after each further failure, up to a limit.
class DeviceReceives final : public DeviceMemory {
 public:
  // `device` has streams for this object alone; `on_device` by rank: its model is there.
  DeviceReceives(std::shared_ptr<DeviceRuntime> device, Kind kind, std::vector<bool> on_device);

  Kind kind() const override { return kind_; }
  std::shared_ptr<void> enter() override { return device_->enter(Stream::upload); }
  bool contains(const FrozenTensor& t) const override { return t.device() == device_->device(); }
  at::Tensor allocate(Rank to, at::IntArrayRef sizes, at::ScalarType dtype) override;

  // Messages without a try after the first failure, and at most.
  static constexpr int kFirstPause = 16;
  static constexpr int kLongestPause = 1024;

 private:
  at::Tensor try_allocate(at::IntArrayRef sizes, at::ScalarType dtype, std::string& why);
  void pause(Rank to, const std::string& why);

  const std::shared_ptr<DeviceRuntime> device_;
  const Kind kind_;
  const std::vector<bool> on_device_;
  int pause_ = 0;  // of the last failure, in messages; 0: the last try succeeded
  int left_ = 0;   // of it
  bool reported_ = false;
};

// For the ranks of this process, by the devices of their models; null: a rank in the host's memory,
// or of another process. Null where they have no CUDA device, or several: UCX before 1.19 serves
// one context. Errors: open_device()'s.
Expected<std::shared_ptr<DeviceMemory>> memory_for_receives(
    const std::vector<std::shared_ptr<DeviceRuntime>>& devices);

}  // namespace grapevine
