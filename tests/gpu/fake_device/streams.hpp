// The current device and streams of a thread, as LibTorch asks for them.
#pragma once
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/gpu/fake_device/memory.hpp"

namespace grapevine::fake {

// The stream of Order in which an operation of this thread on `device` runs. In a thread of the
// autograd engine, where it has entered no stream: that of the forward pass, as LibTorch does for
// CUDA, which is where `written`, an operand of a backward operation, was written.
std::size_t stream_of_operation(int device, const Block* written);
// Whether it is known only when there is such an operand.
bool is_engine_thread();

std::int64_t current_stream_id(int device);
// Returns the one before.
std::int64_t exchange_stream_id(int device, std::int64_t id);
std::int64_t new_stream_id();

// Waits for all work of a stream, and opens pinned memory.
void synchronize(std::size_t stream);

}  // namespace grapevine::fake
