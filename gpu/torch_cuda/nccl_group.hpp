// NCCL behind GradientGroup: one communicator for each GPU of a worker.
#pragma once
#ifdef GRAPEVINE_NCCL
#include <memory>
#include <vector>

#include "gpu/replicas/gradient_group.hpp"

namespace grapevine {

// Joins all GPUs; blocks until they are there, at most `timeout`, which also bounds each launch.
// REQUIRES: the GPUs differ. Errors: NcclCommunicator::join's.
Expected<std::shared_ptr<GradientGroup>> join_nccl_group(const std::vector<int>& gpus,
                                                         Duration timeout);

}  // namespace grapevine
#endif
