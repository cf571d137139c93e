// The mean of vectors of a worker's devices, on the first one.
#pragma once
#include <vector>

#include "gpu/device.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Of `values`, added in their order, as the host adds them: bit-identical where the device's
// additions are the host's. Work of the compute stream of `lead`, which waits for the streams that
// wrote them; the host does not wait. Those of other devices are copied to the lead's, one after
// the other, into memory for one. Throws ATen's exceptions. REQUIRES: at least one, of equal sizes,
// on devices of one kind; the first one on the lead's.
FrozenTensor mean_on_device(DeviceRuntime& lead, std::vector<FrozenTensor> values);

}  // namespace grapevine
