// CountingAllocator: the memory that LibTorch is asked for on the CPU while a test runs.
#pragma once
#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace grapevine {

// In place of LibTorch's allocator as long as it lives: the blocks that were asked for, and the
// bytes that came back. Tensors may outlive an object. One at a time. Thread-safe.
class CountingAllocator final : public c10::Allocator {
 public:
  // Smaller blocks are shapes, names and messages without a payload.
  static constexpr std::size_t kSmallestCounted = 4096;

  CountingAllocator() {
    g_inner = c10::GetAllocator(c10::kCPU);
    g_blocks_taken = g_allocated = g_kept = 0;
    install(this);
  }
  ~CountingAllocator() override { install(g_inner); }
  c10::DataPtr allocate(std::size_t bytes) const override {
    c10::DataPtr block = g_inner->allocate(bytes);
    if (bytes < kSmallestCounted || block.get() != block.get_context()) return block;
    ++g_blocks_taken;
    g_allocated += static_cast<std::int64_t>(bytes);
    g_kept += static_cast<std::int64_t>(bytes);
    const std::lock_guard<std::mutex> lock(g_mutex);
    void* const memory = block.release_context();
    g_blocks[memory] = static_cast<std::int64_t>(bytes);
    return {memory, memory, &free_counted, block.device()};
  }
  std::int64_t blocks() const { return g_blocks_taken; }
  std::int64_t allocated() const { return g_allocated; }  // bytes
  std::int64_t kept() const { return g_kept; }            // of them, not freed

 private:
  static void install(c10::Allocator* allocator) {
    c10::SetAllocator(c10::kCPU, allocator, /*priority=*/100);
  }
  static void free_counted(void* memory) {
    {
      const std::lock_guard<std::mutex> lock(g_mutex);
      const auto found = g_blocks.find(memory);
      g_kept -= found->second;
      g_blocks.erase(found);
    }
    g_inner->raw_deleter()(memory);
  }

  static inline c10::Allocator* g_inner = nullptr;
  static inline std::atomic<std::int64_t> g_blocks_taken{0}, g_allocated{0}, g_kept{0};
  static inline std::mutex g_mutex;
  static inline std::unordered_map<void*, std::int64_t> g_blocks;  // guarded by g_mutex
};

}  // namespace grapevine
