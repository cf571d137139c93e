// FakeDevice: devices of LibTorch for tests, with memory of their own, streams and events.
//
// Tensors on it are `xpu` tensors: LibTorch 1.13 gives the parameters of a module another device
// only if it is one of a few (CPU, CUDA, MPS, HIP, XPU), and PrivateUse1 is none of them. Nothing
// of XPU is in the builds of LibTorch that this project uses.
//
// What it checks, without a device and without luck:
// - The host cannot touch the memory that tensors show: every operator works through another
//   mapping of the same pages, on the CPU, so that results are the CPU's bits.
// - Every operation belongs to the current stream of its thread. One that reads what another stream
//   has written, overwrites what another has read or written, or is given memory that another still
//   uses, without a wait for it, is a violation that names both, also where the calls happened to
//   come in the right order: only waits count. A wait of the host counts for the whole process:
//   work that it has waited for is ordered before all work that any thread enqueues later. A
//   missing wait of a stream is therefore not found where the host has waited for the same work
//   before.
// - Pinned memory may be touched only after the host has waited for the copies that use it.
// - Operands on the host that CUDA would refuse are refused.
// - An event of LibTorch is recorded, awaited and ended only while its device is the current one of
//   the thread: for CUDA, LibTorch would otherwise open a context on the current one.
// - Graphs (graph.hpp).
// What it does not: work never runs late or at once, and takes no time but what a test gives it:
// the time of streams and of the host is counted, in seconds that do not pass (order.hpp).
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "tests/gpu/fake_device/order.hpp"

namespace grapevine::fake {

inline constexpr int kDevices = 2;

inline at::Device device(int index) { return {at::kXPU, static_cast<at::DeviceIndex>(index)}; }

// With streams of its own, which violations name after `name`.
std::shared_ptr<DeviceRuntime> open_device(int index, const std::string& name);

// Of all devices, since the last reset(). Violations end the list at fifty.
std::vector<std::string> violations();
Traffic traffic();
// Of an operator, "aten::…" or "grapevine::…".
std::uint64_t calls(const std::string& operation);
void set_fault(Fault fault);
// From now on an operation, as in calls(), "upload", "download" or "copy between devices", takes so
// long in its stream; until the next reset().
void set_duration(const std::string& operation, double seconds);
// The host does something else for so long: what it enqueues afterwards begins later.
void host_works(double seconds);
double host_time();
void reset();

// A copy by hardware beside the devices, such as a network device, in no stream. A violation: the
// host has not waited for the work that wrote `from`, or for what used the memory of `to` before.
// REQUIRES: both contiguous, of the same bytes; not in pinned memory.
void copy_outside(const at::Tensor& to, const at::Tensor& from);

// The values of a tensor on a device, in the host's memory, without an operation: for comparisons.
at::Tensor peek(const at::Tensor& t);

}  // namespace grapevine::fake
