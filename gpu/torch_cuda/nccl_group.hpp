// NCCL behind GradientGroup: one communicator for each GPU of a worker in this process.
#pragma once
#ifdef GRAPEVINE_NCCL
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/replicas/gradient_group.hpp"

namespace grapevine {

// Joins all GPUs; blocks until they are there, at most `timeout`, which also bounds each launch.
// REQUIRES: the GPUs differ. Errors: NcclCommunicator::join's.
Expected<std::shared_ptr<GradientGroup>> join_nccl_group(const std::vector<int>& gpus,
                                                         Duration timeout);

// Joins one GPU to a group whose other replicas are in other processes; else the same. `id`: of
// NcclCommunicator::make_id, the same in all processes. A launch here does not wait for those of
// the other processes: the driver of one process does not delay another's launch. `cancelled`: ends
// the wait for the other processes; null: never.
Expected<std::shared_ptr<GradientGroup>> join_nccl_group_of_processes(
    const std::vector<std::uint8_t>& id, int gpu, std::size_t replica, std::size_t replicas,
    Duration timeout, const std::function<bool()>& cancelled);

}  // namespace grapevine
#endif
