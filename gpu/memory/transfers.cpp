#include "gpu/memory/transfers.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "gpu/memory/model_memory.hpp"
#include "gpu/torch_error.hpp"

namespace grapevine {

FlatSlice flat_slice(std::int64_t numel, std::size_t index, std::size_t count) {
  const auto slices = static_cast<std::int64_t>(count);
  const std::int64_t most = (numel + slices - 1) / slices;
  const std::int64_t begin = std::min(numel, static_cast<std::int64_t>(index) * most);
  return {begin, std::min(most, numel - begin)};
}

Transfers::Transfers(std::shared_ptr<DeviceRuntime> runtime, std::size_t staging_bytes,
                     Duration timeout)
    : runtime_(std::move(runtime)),
      timeout_(timeout),
      staging_([device = runtime_](std::size_t bytes) { return device->pinned_memory(bytes); },
               staging_bytes) {}

Transfers::~Transfers() {
  // Memory that the streams still use is freed after this. A device that does not answer within the
  // timeout, or not at all, has failed, and its memory with it.
  try {
    for (const Stream stream : {Stream::upload, Stream::compute, Stream::download})
      if (!runtime_->host_wait(runtime_->record(stream), timeout_)) return;
  } catch (const std::exception& e) {
    spdlog::warn("{}: {}", runtime_->device().str(), one_line(e));
  }
}

at::Tensor Transfers::on_device(at::IntArrayRef shape, at::ScalarType dtype) const {
  return at::empty(shape, at::TensorOptions(dtype).device(runtime_->device()));
}

// Copies from and to ordinary memory block the host until all before them in the stream has run,
// and without a limit; so that is waited for first.
void Transfers::wait_for(const EventHandle& event) {
  const Expected<void> here = runtime_->host_wait(event, timeout_);
  if (!here) throw std::runtime_error(here.error().message);
}

void Transfers::copy_up(const at::Tensor& to, const at::Tensor& host) {
  const at::NoGradGuard no_grad;
  const at::Tensor from = host.contiguous().view({-1});
  const at::Tensor flat = to.view({-1});
  staged_bytes_ += from.nbytes();
  if (static_cast<std::int64_t>(from.nbytes()) > kPartBytes) return copy_up_in_parts(flat, from);
  if (from.numel() == 0) return;
  at::Tensor staged = staging_.try_take(from.sizes(), from.scalar_type());
  if (!staged.defined()) return copy_up_unstaged(flat, from);
  staged.copy_(from);
  runtime_->copy(Stream::upload, flat, staged);
  staging_.hold(std::move(staged), runtime_->record(Stream::upload));
}

// One part is copied into pinned memory while the ones before cross the bus.
void Transfers::copy_up_in_parts(const at::Tensor& flat, const at::Tensor& from) {
  const std::int64_t part = kPartBytes / static_cast<std::int64_t>(from.element_size());
  for (std::int64_t begin = 0; begin < from.numel(); begin += part) {
    const std::int64_t count = std::min(part, from.numel() - begin);
    const at::Tensor rest = from.narrow(0, begin, from.numel() - begin);
    RingPart& next = next_part();
    if (!next.memory.defined()) return copy_up_unstaged(flat.narrow(0, begin, rest.numel()), rest);
    if (next.copied && !next.copied->reached()) wait_for(next.copied);
    at::Tensor slice = at::from_blob(next.memory.data_ptr(), {count}, from.options());
    slice.copy_(from.narrow(0, begin, count));
    runtime_->copy(Stream::upload, flat.narrow(0, begin, count), slice);
    next.copied = runtime_->record(Stream::upload);
    next_ = (next_ + 1) % kRingParts;
  }
}

// Fewer parts make the ring where there is no pinned memory for more; without memory: there is
// none.
Transfers::RingPart& Transfers::next_part() {
  if (!ring_[next_].memory.defined())
    ring_[next_].memory = staging_.try_take({kPartBytes}, at::kByte);
  if (!ring_[next_].memory.defined()) next_ = 0;
  return ring_[next_];
}

void Transfers::copy_up_unstaged(const at::Tensor& flat, const at::Tensor& from) {
  wait_for(runtime_->record(Stream::upload));
  const at::Tensor copy = from.clone();
  runtime_->copy(Stream::upload, flat, copy);
  staging_.hold(copy, runtime_->record(Stream::upload));
}

bool Transfers::is_resident(const FrozenTensor& t) const {
  return t.defined() && !t.device().is_cpu() && t.device() == runtime_->device();
}

// The device reads the frozen bytes after this has returned, and perhaps after the caller's handle
// has ended: the handle here keeps every owner from writing them, and their memory from the next
// model, until the copy has been reached.
void Transfers::copy_up_in_place(const at::Tensor& to, const FrozenTensor& owner,
                                 const at::Tensor& part) {
  runtime_->copy(Stream::upload, to.view({-1}), part.view({-1}));
  reading_.push_back({owner, runtime_->record(Stream::upload)});
}

// At each upload, so that what an error left here ends; and in finish(), before a result reaches
// its reader: by then the copies that it came from have been reached, so that the owner of z, who
// writes its next model over it if no other handle is left, finds none here.
void Transfers::release_read() {
  const auto is_read = [](const Reading& each) { return !each.copied || each.copied->reached(); };
  reading_.erase(std::remove_if(reading_.begin(), reading_.end(), is_read), reading_.end());
}

at::Tensor Transfers::upload(const FrozenTensor& from, DeviceSlot& slot) {
  if (is_resident(from)) {
    const auto scope = runtime_->enter(Stream::compute);
    return from.read();
  }
  const bool on_host = !from.defined() || from.device().is_cpu();
  if (!on_host && from.device().type() == runtime_->device().type()) return copy_across(from, slot);
  const bool pinned = from.defined() && on_host && is_pinned_model(from.read());
  if (runtime_->in_host_memory() || !pinned) return upload(from.on_host().read(), slot);
  const auto scope = runtime_->enter(Stream::upload);
  const at::Tensor& host = from.read();
  const at::Tensor& memory = memory_in(slot, host.sizes(), host.scalar_type());
  copy_up_in_place(memory, from, host);
  return memory;
}

// The allocator of the other device learns that this upload stream reads.
at::Tensor Transfers::copy_across(const FrozenTensor& from, DeviceSlot& slot) {
  const auto scope = runtime_->enter(Stream::upload);
  const at::Tensor& memory = memory_in(slot, from.sizes(), from.dtype());
  runtime_->copy(Stream::upload, memory, from.read_on(runtime_->device()));
  return memory;
}

FrozenTensor Transfers::keep(at::Tensor&& result) {
  const auto scope = runtime_->enter(Stream::compute);
  return FrozenTensor::freeze(std::move(result));
}

at::Tensor Transfers::upload(const at::Tensor& host, DeviceSlot& slot) {
  if (runtime_->in_host_memory()) return host;
  const auto scope = runtime_->enter(Stream::upload);
  const at::Tensor& memory = memory_in(slot, host.sizes(), host.scalar_type());
  copy_up(memory, host);
  return memory;
}

at::Tensor Transfers::upload_slice(const FrozenTensor& from, std::size_t index, std::size_t count,
                                   DeviceSlot& slot) {
  const auto scope = runtime_->enter(Stream::upload);
  const std::int64_t all =
      flat_slice(from.numel(), 0, count).size * static_cast<std::int64_t>(count);
  const at::Tensor& memory = memory_in(slot, {all}, from.dtype());
  const FlatSlice slice = flat_slice(from.numel(), index, count);
  const at::Tensor to = memory.narrow(0, slice.begin, slice.size);
  const at::Tensor part = from.read().narrow(0, slice.begin, slice.size);
  if (slice.size > 0 && is_pinned_model(from.read()))
    copy_up_in_place(to, from, part);
  else
    copy_up(to, part);
  return memory;
}

// For the upload stream, which waits for the last computation that read it. REQUIRES: in the scope
// of that stream.
const at::Tensor& Transfers::memory_in(DeviceSlot& slot, at::IntArrayRef shape,
                                       at::ScalarType dtype) {
  release_read();
  runtime_->wait(Stream::upload, runtime_->record(Stream::compute));
  if (!slot.memory.defined() || slot.memory.sizes() != shape ||
      slot.memory.scalar_type() != dtype) {
    slot.memory = on_device(shape, dtype);
    runtime_->record_stream(slot.memory, Stream::compute);
  }
  return slot.memory;
}

at::Tensor Transfers::memory_for(DeviceSlot& slot, std::int64_t numel) {
  const auto scope = runtime_->enter(Stream::upload);
  return memory_in(slot, {numel}, at::kFloat);
}

FrozenTensor Transfers::send_to_device(const FrozenTensor& from) {
  const auto scope = runtime_->enter(Stream::upload);
  at::Tensor memory = on_device(from.sizes(), from.dtype());
  copy_up(memory, from.read());
  return FrozenTensor::freeze(std::move(memory));
}

Batch Transfers::upload(const Batch& host) {
  if (runtime_->in_host_memory()) return host;
  const auto scope = runtime_->enter(Stream::upload);
  Batch batch{on_device(host.input.sizes(), host.input.scalar_type()),
              on_device(host.target.sizes(), host.target.scalar_type())};
  copy_up(batch.input, host.input);
  copy_up(batch.target, host.target);
  runtime_->record_stream(batch.input, Stream::compute);
  runtime_->record_stream(batch.target, Stream::compute);
  return batch;
}

std::unique_ptr<StreamScope> Transfers::begin_compute() {
  runtime_->wait(Stream::compute, runtime_->record(Stream::upload));
  // Results are written where the last downloads read; they may be unfinished after an error.
  runtime_->wait(Stream::compute, runtime_->record(Stream::download));
  return runtime_->enter(Stream::compute);
}

std::unique_ptr<StreamScope> Transfers::begin_exchange(const at::Tensor& computed) {
  runtime_->record_stream(computed, Stream::exchange);
  runtime_->wait(Stream::exchange, runtime_->record(Stream::compute));
  return runtime_->enter(Stream::exchange);
}

void Transfers::end_exchange() {
  runtime_->wait(Stream::compute, runtime_->record(Stream::exchange));
}

void Transfers::end_compute() {
  runtime_->wait(Stream::download, runtime_->record(Stream::compute));
}

at::Tensor Transfers::download(const at::Tensor& result) {
  if (runtime_->in_host_memory()) return result;
  const auto scope = runtime_->enter(Stream::download);
  at::Tensor host = staging_.try_take(result.sizes(), result.scalar_type());
  const bool pinned = host.defined();
  if (!pinned) host = at::empty(result.sizes(), at::TensorOptions(result.scalar_type()));
  copy_down(host, pinned, result);
  return host;
}

// In the download stream.
void Transfers::copy_down(at::Tensor host, bool pinned, const at::Tensor& result) {
  runtime_->record_stream(result, Stream::download);
  if (pinned) {
    in_flight_.push_back(host);
    runtime_->copy(Stream::download, host, result);
  } else {
    late_.push_back({std::move(host), result});
  }
}

Transfers::HostMemory Transfers::host_memory(std::int64_t numel) {
  at::Tensor flat = staging_.try_take({numel}, at::kFloat);
  if (flat.defined()) return {std::move(flat), true};
  return {at::empty({numel}, at::TensorOptions(at::kFloat)), false};
}

void Transfers::download_slice(const HostMemory& to, const at::Tensor& result, FlatSlice slice) {
  if (slice.size == 0) return;
  const auto scope = runtime_->enter(Stream::download);
  copy_down(to.flat.narrow(0, slice.begin, slice.size), to.pinned,
            result.narrow(0, slice.begin, slice.size));
}

void Transfers::download_reduced(const HostMemory& to, const at::Tensor& result, FlatSlice slice) {
  runtime_->wait(Stream::download, runtime_->record(Stream::exchange));
  download_slice(to, result, slice);
}

at::Tensor Transfers::download(const FrozenTensor& result) {
  const auto scope = runtime_->enter(Stream::download);
  return download(result.read());  // the stream waits for the one that wrote it
}

Expected<void> Transfers::finish() {
  EventHandle last = runtime_->record(Stream::download);
  Expected<void> done = runtime_->host_wait(last, timeout_);
  const std::vector<Late> late = std::exchange(late_, {});
  if (done && !late.empty()) {
    for (const Late& each : late) {
      in_flight_.push_back(each.host);
      runtime_->copy(Stream::download, each.host, each.result);
    }
    last = runtime_->record(Stream::download);
    done = runtime_->host_wait(last, timeout_);
  }
  // These handles end here in any case: freezing needs the last one. hold() takes over what a
  // device that does not answer may still write to.
  for (at::Tensor& host : in_flight_)
    if (!done) staging_.hold(std::move(host), last);
  in_flight_.clear();
  release_read();
  return done;
}

}  // namespace grapevine
