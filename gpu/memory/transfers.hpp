// Transfers: parameters and batches to the device, results back, beside the computation.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/staging.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/time.hpp"

namespace grapevine {

// One of `count` equal slices of a flat tensor, each of ceil(numel / count) elements; the last ones
// are shorter, or empty.
struct FlatSlice {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
FlatSlice flat_slice(std::int64_t numel, std::size_t index, std::size_t count);

// The order of one step, with the stream in which each part runs:
//
//   upload    z, buffers                      batch of the next step
//   compute              forward, backward
//   exchange                     (buckets)
//   download                      (buckets)  gradient, buffers, figures
//   host                 (reads the next batch)                     waits here, and only here
//
// Replicas of a group reduce buckets of the gradient in the exchange stream, each behind what
// computed it, and download each behind its reduction, beside the backward pass.
//
// A model that is on the device already is read there, and its gradient stays there: the compute
// stream waits for the stream that wrote it, and that of the reader for the gradient
// (messages/frozen_tensor.hpp). A model on another device is copied from there, without the host:
// the upload stream waits for the stream that wrote it.
//
// A frozen tensor in pinned memory of a ModelMemory, as z is where its rank keeps its model in the
// host's memory, is uploaded from where it lies. All else on the host is copied into pinned memory
// first, by the host.
//
// Uploads overwrite what the last computation read, so they wait for its end in their stream; the
// host waits once, for the last copy of a step. On a device in host memory all of this is nothing:
// tensors pass as they are.
//
// The host waits more often where an upload fills the ring of pinned parts before the first of them
// has crossed the bus, and where pinned memory runs out: before uploads, which throw
// std::runtime_error where the device does not answer, and for downloads, which finish() does then.
// Every wait is bounded by `timeout`.
//
// Not thread-safe.
class Transfers {
 public:
  // Uploads of more than a part go through a ring of pinned parts, which is kept.
  static constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;
  static constexpr std::size_t kRingParts = 8;
  static constexpr std::size_t kRingBytes = kRingParts * static_cast<std::size_t>(kPartBytes);

  // `staging_bytes`: most pinned memory. `timeout`: longest wait of the host.
  Transfers(std::shared_ptr<DeviceRuntime> runtime, std::size_t staging_bytes, Duration timeout);
  // Waits for the copies in flight, at most `timeout`.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Fixed memory on the device for a tensor that every step uploads anew.
  struct DeviceSlot {
    at::Tensor memory;
  };

  // `from` for the compute stream: itself where it is on the device already, else in `slot`, which
  // then serves until the next call with the same slot, and `from` may end when this returns. From
  // another device of the same kind it is copied, and the host does not wait. From the host: where
  // it is uploaded from where it lies, a handle on it is kept until finish() or the next upload
  // sees that the copy has ended; until then no owner can write the tensor.
  at::Tensor upload(const FrozenTensor& from, DeviceSlot& slot);
  // The same of a tensor in the host's memory.
  at::Tensor upload(const at::Tensor& host, DeviceSlot& slot);
  // The slice number `index` of `count` (flat_slice()) in its place in `slot`, which has room for
  // `count` slices of the first one's size and serves as upload()'s does. What is not in the
  // slice, and the end of the last slices where there is nothing left, is undefined. REQUIRES:
  // `from` in the host's memory, flat; a device with memory of its own.
  at::Tensor upload_slice(const FrozenTensor& from, std::size_t index, std::size_t count,
                          DeviceSlot& slot);
  // Memory in `slot` for `numel` float32 that the compute stream writes, which serves as that of
  // upload() does. REQUIRES: a device with memory of its own.
  at::Tensor memory_for(DeviceSlot& slot, std::int64_t numel);
  // `from`, of the host's memory, in memory of its own that is complete after the upload stream's
  // work; `from` may end when this returns. REQUIRES: a device with memory of its own.
  FrozenTensor send_to_device(const FrozenTensor& from);
  // Whether upload() takes it as it is, and it is not in the host's memory.
  bool is_resident(const FrozenTensor& t) const;

  // A batch in memory of its own. `host` may end when this returns.
  Batch upload(const Batch& host);

  // ATen calls of this thread go to the compute stream, behind all uploads so far.
  std::unique_ptr<StreamScope> begin_compute();
  // ATen calls of this thread go to the exchange stream, behind all that was computed so far; it
  // uses the memory of `computed`. From any thread, while that of begin_compute() makes no call
  // here.
  std::unique_ptr<StreamScope> begin_exchange(const at::Tensor& computed);
  // What is computed from here on waits for the exchange stream's work.
  void end_exchange();
  // Downloads from here on wait for what was computed so far.
  void end_compute();

  // `result` for other streams of the device, without a copy; the only handle on its storage must
  // be `result`. REQUIRES: contiguous, computed before end_compute().
  FrozenTensor keep(at::Tensor&& result);
  // A tensor on the host, the only handle on its storage, that holds `result` after finish(). On a
  // device in host memory: `result`. REQUIRES: contiguous, computed before end_compute().
  at::Tensor download(const at::Tensor& result);
  // The same of what any stream of the device has written.
  at::Tensor download(const FrozenTensor& result);

  // Memory on the host into which several devices download slices. Beyond the limit of pinned
  // memory: ordinary memory.
  struct HostMemory {
    at::Tensor flat;
    bool pinned = false;
  };
  HostMemory host_memory(std::int64_t numel);  // of float32
  // Puts the slice of `result` into its place in `to`, which holds it after finish(). No handle on
  // `to` is kept beyond that. REQUIRES: what download() does; both flat, of one length and type; a
  // device with memory of its own.
  void download_slice(const HostMemory& to, const at::Tensor& result, FlatSlice slice);
  // The same of what the exchange stream has been given to do so far, before end_compute(). From
  // any thread, as begin_exchange().
  void download_reduced(const HostMemory& to, const at::Tensor& result, FlatSlice slice);

  // Waits until all downloads are here. Errors: those of DeviceRuntime::host_wait.
  Expected<void> finish();

  // Bytes that the host has copied for uploads, since the start.
  std::uint64_t staged_bytes() const { return staged_bytes_; }

  const DeviceRuntime& runtime() const { return *runtime_; }
  const StagingPool& staging() const { return staging_; }

 private:
  struct RingPart {
    at::Tensor memory;  // [kPartBytes]; undefined until it is needed
    EventHandle copied;
  };
  struct Late {
    at::Tensor host;
    at::Tensor result;
  };

  // The source of an upload from where it lies.
  struct Reading {
    FrozenTensor source;
    EventHandle copied;
  };

  void copy_down(at::Tensor host, bool pinned, const at::Tensor& result);
  at::Tensor on_device(at::IntArrayRef shape, at::ScalarType dtype) const;
  const at::Tensor& memory_in(DeviceSlot& slot, at::IntArrayRef shape, at::ScalarType dtype);
  void wait_for(const EventHandle& event);
  at::Tensor copy_across(const FrozenTensor& from, DeviceSlot& slot);
  void copy_up_in_place(const at::Tensor& to, const FrozenTensor& owner, const at::Tensor& part);
  void release_read();
  void copy_up(const at::Tensor& to, const at::Tensor& host);
  RingPart& next_part();
  void copy_up_in_parts(const at::Tensor& flat, const at::Tensor& from);
  void copy_up_unstaged(const at::Tensor& flat, const at::Tensor& from);

  const std::shared_ptr<DeviceRuntime> runtime_;
  const Duration timeout_;
  StagingPool staging_;
  std::array<RingPart, kRingParts> ring_;
  std::size_t next_ = 0;               // of the ring
  std::vector<at::Tensor> in_flight_;  // targets of downloads that no finish() has seen
  std::vector<Late> late_;             // downloads into ordinary memory, for finish() to do
  std::vector<Reading> reading_;
  std::uint64_t staged_bytes_ = 0;
};

}  // namespace grapevine
