// CUDA behind DeviceRuntime: streams, events, pinned memory.
#pragma once

namespace grapevine {

// Makes the GPUs that this process sees known to gpu/device.hpp. At program start, before other
// threads; again: no effect. No GPU, or no driver, is not an error: there are 0 GPUs then.
void register_cuda_devices();

}  // namespace grapevine
