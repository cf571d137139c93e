// CPUs near a GPU: the threads that launch its work run on its NUMA node.
#pragma once
#include <c10/core/Device.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "messages/expected.hpp"

namespace grapevine {

using CpuSet = std::set<int>;  // numbers of CPUs, as the kernel has them

inline constexpr int kMostCpus = 8192;
inline constexpr const char* kPciDevices = "/sys/bus/pci/devices";

// The CPUs of a list of the kernel, such as "0-15,32-47\n"; of an empty one, none. nullopt: it is
// no such list, or has a CPU from kMostCpus on. Pure.
std::optional<CpuSet> parse_cpus(const std::string& text);
// The shortest such list, without a line break. Pure.
std::string cpus_text(const CpuSet& cpus);

// On which the calling thread may run. Errors: the system's.
Expected<CpuSet> thread_cpus();
// The calling thread runs on these from now on, and so do the threads that it creates later, such
// as the OpenMP threads of its operations. REQUIRES: in [0, kMostCpus); the thread ends with its
// user, as a thread that is used again would stay bound. Errors: the system's, also where none of
// them is available; the thread is then bound as before.
Expected<void> bind_thread(const CpuSet& cpus);

// The CPUs of the calling thread that are near the GPU `device`: those that `pci_devices` (a folder
// as kPciDevices is) has in <PCI address of the GPU>/local_cpulist. So the binding by a scheduler
// remains in force. Never empty, never all of the thread's CPUs. Errors: unavailable; the message
// is the clause after "not bound to CPUs:": the address or the list is not known, no CPU of the
// thread is near, all are.
Expected<CpuSet> near_cpus(at::Device device,
                           const std::filesystem::path& pci_devices = kPciDevices);

// Of a process whose threads launch work on `all` devices.
struct CpuShares {
  std::size_t own = 1;     // CPUs of the process
  std::size_t all = 1;     // devices
  std::size_t near = 0;    // CPUs of the process that are near some of the devices,
  std::size_t shared = 1;  // and the number of those devices
};
// Whether threads that are bound to the near CPUs have enough of them: `least` for each device that
// shares them, or at least half of what a device has without a binding. A CPU set that a scheduler
// has not aligned with the nodes may have a single CPU near a device. Pure.
bool are_enough(const CpuShares& shares, std::size_t least);

// For each of `devices`, one entry for each user of a device: near_cpus(). Errors, by device: those
// of near_cpus(); unavailable where they are not enough (are_enough()).
std::vector<Expected<CpuSet>> near_cpus_of_each(
    const std::vector<at::Device>& devices, std::size_t least,
    const std::filesystem::path& pci_devices = kPciDevices);

// The threads of one operation that wait for each other where they share a CPU: `threads`, but no
// more than the smallest set has CPUs. REQUIRES: no set is empty. Pure.
int threads_within(int threads, const std::vector<CpuSet>& sets);

// Binds the threads that launch work on the runtime's device: the calling one, and the one on which
// LibTorch runs the backward passes on that device for all threads of the process. LibTorch creates
// these threads for all devices at the first backward pass, with the CPUs of the thread that calls
// it: the calling thread is therefore bound last, so that threads of devices without a binding keep
// the CPUs of the process. Errors: bind_thread()'s; failed where LibTorch throws; the calling
// thread is then bound as before.
Expected<void> bind_launching_threads(DeviceRuntime& runtime, const CpuSet& cpus);

}  // namespace grapevine
