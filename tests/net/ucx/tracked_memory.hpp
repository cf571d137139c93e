// TrackedMemory: host memory that plays a device's for a transport, known by its address.
#pragma once
#include <ATen/ops/from_blob.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "net/device_memory.hpp"

namespace grapevine {

// Thread-safe; tensors may outlive it.
class TrackedMemory final : public DeviceMemory {
 public:
  // `on_device` by rank.
  explicit TrackedMemory(std::vector<bool> on_device) : on_device_(std::move(on_device)) {}

  Kind kind() const override { return Kind::host; }
  std::shared_ptr<void> enter() override {
    thread_ = std::this_thread::get_id();
    return std::make_shared<int>(0);
  }
  bool contains(const FrozenTensor& t) const override {
    foreign_calls_ += std::this_thread::get_id() != thread_;
    return holds(t);
  }
  at::Tensor allocate(Rank to, at::IntArrayRef sizes, at::ScalarType dtype) override {
    foreign_calls_ += std::this_thread::get_id() != thread_;
    if (!on_device_[static_cast<std::size_t>(to)]) return {};
    ++allocations_;
    return make(sizes, dtype);
  }

  at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype) const {
    std::size_t bytes = at::elementSize(dtype);
    for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
    void* const block = std::malloc(bytes);
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->blocks.insert(block);
    }
    const auto release = [state = state_](void* p) {
      {
        const std::lock_guard<std::mutex> lock(state->mutex);
        state->blocks.erase(p);
      }
      std::free(p);
    };
    return at::from_blob(block, sizes, release, at::TensorOptions(dtype));
  }

  bool holds(const FrozenTensor& t) const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->blocks.count(const_cast<void*>(t.raw())) > 0;  // NOLINT: a key
  }
  int allocations() const { return allocations_; }
  // Calls of a transport on another thread than the one that has entered.
  int foreign_calls() const { return foreign_calls_; }
  std::size_t blocks_in_use() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->blocks.size();
  }

 private:
  struct State {
    std::mutex mutex;
    std::set<void*> blocks;  // guarded by mutex
  };

  const std::vector<bool> on_device_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::atomic<int> allocations_{0};
  mutable std::atomic<int> foreign_calls_{0};
  std::atomic<std::thread::id> thread_{};
};

}  // namespace grapevine
