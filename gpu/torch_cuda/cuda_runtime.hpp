// CUDA behind DeviceRuntime: streams, events, page-locked memory.
#pragma once

namespace grapevine {

// Makes the cards that this process sees known to gpu/device.hpp. At program start, before other
// threads; again: no effect. No card, or no driver, is not an error: there are 0 cards then.
void register_cuda_devices();

}  // namespace grapevine
