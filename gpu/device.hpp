// DeviceRuntime: the interface of a device for a worker, and for a peer whose model is on it: four
// streams, events in them, copies and pinned memory. No call waits for the whole device, but
// pinned_memory() and the end of what it gave, which may.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Work in one stream runs in the order in which it was enqueued; streams run concurrently.
// A worker uses the first three, a peer `exchange`, and so does a replica with a group.
enum class Stream { upload, compute, download, exchange };
inline constexpr std::size_t kStreams = 4;

// A point in a stream: after all work that was enqueued when the event was made. Thread-safe.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Never blocks. Once true, it stays true.
  virtual bool reached() const = 0;
  // Seconds by the device's clock from `earlier` to this; NaN where the device has failed.
  // REQUIRES: both of record_timed(), of one device, and reached.
  virtual double seconds_since(const DeviceEvent& /*earlier*/) const {
    return std::numeric_limits<double>::quiet_NaN();
  }
};
using EventHandle = std::shared_ptr<const DeviceEvent>;  // null: was reached before anything began

// While it lives, ATen calls of the thread that made it go to its stream.
class StreamScope {
 public:
  virtual ~StreamScope() = default;
};

// Operations that were captured, with the addresses of their operands: a replay has the device
// execute them again on the same memory, for one call of the host. Memory that they allocated lasts
// as long as the graph; of all other memory its user takes care. Not thread-safe.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Enqueues all operations in `stream`.
  virtual void replay(Stream stream) = 0;
};

// Not thread-safe, but one object may serve one thread after another. ATen's exceptions pass
// through all calls but host_wait().
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual at::Device device() const = 0;

  // True: the device computes in the host's memory and in program order, so that nothing is
  // copied, events are null and no wait ever waits.
  virtual bool in_host_memory() const = 0;

  // Scopes nest, and end in the reverse order on the thread that made them.
  virtual std::unique_ptr<StreamScope> enter(Stream stream) = 0;

  // Enqueues the copy in `stream` and returns at once; `from` and `to` stay as they are until an
  // event after it is reached. REQUIRES: both contiguous, of the same type and numel; one on the
  // host in memory of pinned_memory(), or else the call may wait for the copy. `from` may be on
  // another device of the same kind.
  virtual void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) = 0;

  virtual EventHandle record(Stream stream) = 0;

  // An event with the time at which the device reaches it, for seconds_since() and reached() alone:
  // no stream and no host waits for it. Null: the device gives no times.
  virtual EventHandle record_timed(Stream /*stream*/) { return nullptr; }

  // Work enqueued in `stream` from now on runs after `event`. The host does not wait.
  virtual void wait(Stream stream, const EventHandle& event) = 0;

  // Blocks the calling thread. Errors: timeout after `timeout`; failed where the device reports
  // an error.
  virtual Expected<void> host_wait(const EventHandle& event, Duration timeout) = 0;

  // The memory of `t`, which was made in another stream, is not reused before the work
  // that `stream` holds at the time of t's end has run.
  virtual void record_stream(const at::Tensor& t, Stream stream) = 0;

  // Pinned memory that a copy can use without waiting; null where there is none left. Both
  // this call and the end of the memory may wait for the device (CUDA's do), and may come from any
  // thread.
  virtual std::shared_ptr<void> pinned_memory(std::size_t bytes) = 0;

  // Why capture() is not possible here; empty: it is.
  virtual std::string why_no_graphs() const { return "the device has no graphs"; }

  // Calls `work` once. The ATen calls that it makes, and those of the backward passes that it
  // starts, are recorded and not executed. `work` makes no call of this runtime, does not wait for
  // the device, copies nothing from or to the host, and draws no random numbers. It may leave
  // nothing that lies in memory which it has allocated. The same operations must have been executed
  // before: libraries prepare themselves at their first call, which cannot be recorded. Graphs of
  // one runtime share the memory that their work allocates: REQUIRES: they are replayed one after
  // the other, in one stream. Throws where an operation cannot be captured, or `work` does: the
  // device is of no use for training then. May wait for the device.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work);
};

// The CPU: nothing to stage, nothing to wait for.
std::shared_ptr<DeviceRuntime> host_runtime();

class GradientGroup;
// A group of one replica on each of the (different) GPUs.
using GroupJoin = std::function<Expected<std::shared_ptr<GradientGroup>>(
    const std::vector<int>& gpus, Duration timeout)>;

// Groups whose replicas are in processes of their own, one in each.
struct ProcessGroups {
  using Id = std::vector<std::uint8_t>;
  // Of a new group; one process makes it, and all others get it as it is.
  std::function<Expected<Id>()> make_id = nullptr;
  // Asked often by a thread that waits: whether it is to give up. Null: never.
  using Cancelled = std::function<bool()>;
  // Returns when all `replicas` have joined, at most after `timeout`, which also bounds each
  // launch. `cancelled`: asked until all have joined. Errors: peer_down where it was cancelled.
  std::function<Expected<std::shared_ptr<GradientGroup>>(const Id& id, int gpu, std::size_t replica,
                                                         std::size_t replicas, Duration timeout,
                                                         const Cancelled& cancelled)>
      join = nullptr;
};

// How this build reaches GPUs of a kind. Each call of `open` gives streams of their own.
struct GpuDriver {
  std::function<int()> visible;  // number of GPUs; 0 where there is no driver either
  std::function<Expected<std::shared_ptr<DeviceRuntime>>(int gpu)> open;
  GroupJoin join_group = nullptr;  // null: this build has no NCCL
  // The name of a GPU in all processes of the machine, independent of the GPUs visible in each.
  std::function<Expected<std::string>(int gpu)> id = nullptr;
  // Threads that do not return from a call of the driver; null: there are none.
  std::function<int()> threads_left_behind = nullptr;
  // The address of a GPU as the system names its folder: "0000:3b:00.0", in lower case. Of a GPU
  // that the system does not know, the path of such a folder.
  std::function<Expected<std::string>(int gpu)> pci_address = nullptr;
  ProcessGroups process_groups = {};  // empty: as join_group
};

// At program start, before other threads. Registering twice replaces.
void register_cuda_driver(GpuDriver driver);

struct Gpus {
  bool built_in = false;
  int visible = 0;
};
Gpus visible_gpus();
GroupJoin cuda_group_join();          // of the registered driver
ProcessGroups cuda_process_groups();  // the same

// The ids of `devices`, the CPU's being empty. Errors: the driver's; unavailable where it has none.
Expected<std::vector<std::string>> device_ids(const std::vector<at::Device>& devices);

// GpuDriver::pci_address of a GPU. Errors: the driver's; unavailable where it has none.
Expected<std::string> pci_address(at::Device gpu);

// While it is true, the process can only be ended by _Exit: see GpuDriver::threads_left_behind.
bool device_threads_left_behind();

// Errors: unavailable where CUDA is not in this build; the driver's.
Expected<std::shared_ptr<DeviceRuntime>> open_device(at::Device device);

// The device of the worker that is number `local_rank` (0, 1, …) on this machine, from what the
// user typed: "cpu"; "cuda": GPU local_rank modulo the visible ones; "cuda:I": GPU I; "auto":
// as "cuda" where a GPU is visible, else as "cpu". Errors: bad_input, with the remedy.
Expected<at::Device> choose_device(const std::string& typed, const Gpus& gpus,
                                   std::int64_t local_rank);

// Whether some machine has a device of that name, whatever GPUs this one has. Errors: bad_input,
// with the remedy.
Expected<void> check_device_name(const std::string& typed);

// The devices of a worker that has `each` of them: those of the local ranks local_worker * each, …
// Errors: choose_device()'s.
Expected<std::vector<at::Device>> choose_devices(const std::string& typed, const Gpus& gpus,
                                                 std::int64_t local_worker, std::int64_t each);

}  // namespace grapevine
