// Groups of replicas on fake devices, in the place of NCCL's: in one process, or one in each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/replicas/gradient_group.hpp"

namespace grapevine::fake {

// Replicas exchange their vectors through memory without a name, which the system frees with the
// last process that has it, and sum them in the order of the replicas, as the host does. `id`: of
// make_group_id(), whose process must live until all have joined. Each collective is work of the
// stream that is current for the device of its operand, ordered after what the streams of all
// replicas of this process held when it was launched: an operand that another stream has written
// without a wait is a violation. Replicas of other processes have no order here. Like NCCL's, a
// group waits for all of its replicas, also while they join: only abort(), a timeout and
// `cancelled` end a wait, and a process that dies ends none.
//
// REQUIRES: one thread for each replica.
Expected<std::shared_ptr<GradientGroup>> join_group(const std::string& id, std::size_t first,
                                                    std::size_t here, std::size_t replicas,
                                                    Duration timeout,
                                                    const std::function<bool()>& cancelled);
// Of a new group.
std::string make_group_id();

// For GpuDriver.
GroupJoin group_join();
ProcessGroups process_groups();

}  // namespace grapevine::fake
