#include "messages/frozen_tensor.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "messages/check.hpp"
#include "messages/device/ready_event.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

// The streams that use the memory of a frozen tensor. Thread-safe.
class DeviceUse {
 public:
  // The tensor is complete after the work of this thread's current stream.
  explicit DeviceUse(const at::Tensor& t) : written_(current_stream(t.device())) {}

  // Work that is enqueued in `stream` from now on may read. The allocator learns of the stream, as
  // the last handle may end before that work.
  void read_in(const at::Tensor& t, c10::Stream stream) {
    if (stream == written_.stream()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::find(readers_.begin(), readers_.end(), stream) != readers_.end()) return;
    written_.wait_in(stream);
    tell_allocator(t, stream);
    readers_.push_back(stream);
  }

  // Work that is enqueued in `stream` from now on may write. REQUIRES: all readers' handles have
  // ended, and their work was enqueued before.
  void write_in(const at::Tensor& t, c10::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const c10::Stream reader : readers_)
      if (reader != stream) ReadyEvent(reader).wait_in(stream);
    if (stream == written_.stream()) return;
    ReadyEvent(written_.stream()).wait_in(stream);  // it has read, too, since it wrote
    tell_allocator(t, stream);
  }

  bool is_in_alone(c10::Stream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stream == written_.stream() && readers_.empty();
  }

 private:
  static void tell_allocator(const at::Tensor& t, c10::Stream stream) {
    c10::impl::getDeviceGuardImpl(stream.device_type())
        ->recordDataPtrOnStream(t.storage().data_ptr(), stream);
  }

  const ReadyEvent written_;
  std::mutex mutex_;
  std::vector<c10::Stream> readers_;  // guarded by mutex_; other than written_.stream()
};

namespace {

// Tensors made in here track versions and no gradients, in every autograd mode of the caller.
struct PlainMode {
  c10::InferenceMode no_inference{false};
  c10::AutoGradMode no_gradients{false};
};

bool is_sole_handle(const at::Tensor& t) {
  return t.use_count() == 1 && t.has_storage() && t.storage().use_count() == 1;
}

// Memory that another process reads as well is never written, whoever holds the last handle here.
bool may_be_written(const at::Tensor& t) {
  const TensorMemory* const memory = memory_of(t);
  return memory == nullptr || memory->exclusive();
}

// Without a context the storage only borrows its memory (at::from_blob): the lender can write it.
bool owns_memory(const at::Tensor& t) { return t.storage().data_ptr().get_context() != nullptr; }

// A part of a storage would keep the whole of it alive. Lazily negated or conjugated tensors hold
// other bytes than their values.
bool is_whole_storage(const at::Tensor& t) {
  return t.is_contiguous() && t.storage_offset() == 0 && t.storage().nbytes() == t.nbytes() &&
         !t.is_neg() && !t.is_conj();
}

// The same storage in a new tensor object, without the attributes of the caller's object (weak
// handles, autograd metadata, the lack of a version counter). Made without the dispatcher,
// which would cost a small message more time than its transfer through shared memory.
at::Tensor fresh_handle(const at::Tensor& t) {
  std::optional<c10::InferenceMode> plain;  // the mode of autograd is read by the dispatcher alone
  if (c10::InferenceMode::is_enabled()) plain.emplace(false);
  at::Tensor handle = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(t.storage()), c10::DispatchKeySet(t.options().computeDispatchKey()), t.dtype());
  handle.unsafeGetTensorImpl()->set_sizes_contiguous(t.sizes());
  return handle;
}

// Whether nothing but `t` refers to its tensor object, and that has no other attributes than a
// fresh one, which would cost a small message as much as its arithmetic. REQUIRES:
// is_sole_handle(t).
bool is_fresh(const at::Tensor& t) {
  static const c10::DispatchKeySet keys = [] {
    const PlainMode mode;
    return at::empty({0}, at::kFloat).key_set();
  }();
  c10::TensorImpl& object = *t.unsafeGetTensorImpl();
  return object.key_set() == keys && object.autograd_meta() == nullptr && !object.is_inference() &&
         t.getIntrusivePtr().weak_use_count() == 1;
}

// copy_ rather than clone: it also resolves lazy negation and conjugation.
at::Tensor plain_copy(const at::Tensor& t) {
  const PlainMode mode;
  return at::empty(t.sizes(), t.options()).copy_(t);
}

// A copy that the caller writes: the next version of `t`, in memory of the same kind.
at::Tensor successor_of(const at::Tensor& t) {
  const TensorMemory* const memory = memory_of(t);
  if (memory == nullptr || has_send_memory()) return plain_copy(t);
  const PlainMode mode;
  const at::Tensor copy = memory->allocate_like(t.sizes(), t.scalar_type());
  return copy.defined() ? copy.copy_(t) : plain_copy(t);
}

}  // namespace

FrozenTensor::FrozenTensor(at::Tensor t)
    : tensor_(std::move(t)),
      version_(tensor_._version()),
      use_(tensor_.is_cpu() ? nullptr : std::make_shared<DeviceUse>(tensor_)) {}

FrozenTensor FrozenTensor::freeze(at::Tensor&& t) {
  GRAPEVINE_CHECK(t.defined(), "freeze of an undefined tensor");
  at::Tensor mine = std::move(t);
  if (is_sole_handle(mine) && is_whole_storage(mine) && owns_memory(mine) && !mine.requires_grad())
    return FrozenTensor(is_fresh(mine) ? std::move(mine) : fresh_handle(mine));
  return copy_of(mine);
}

FrozenTensor FrozenTensor::copy_of(const at::Tensor& t) {
  GRAPEVINE_CHECK(t.defined(), "copy_of an undefined tensor");
  GRAPEVINE_CHECK(t.layout() == at::kStrided, "only dense tensors freeze, not ", t.layout());
  return FrozenTensor(plain_copy(t));
}

at::Tensor FrozenTensor::thaw() && {
  GRAPEVINE_CHECK(defined(), "thaw of an empty FrozenTensor");
  check_untouched();
  const std::shared_ptr<DeviceUse> use = std::move(use_);
  at::Tensor t = std::move(tensor_);
  tensor_ = at::Tensor();
  const bool mine = is_sole_handle(t) && may_be_written(t) && !t.requires_grad();
  if (use && mine) use->write_in(t, current_stream(t.device()));
  if (use && !mine) use->read_in(t, current_stream(t.device()));
  return mine ? t : successor_of(t);
}

bool FrozenTensor::sole_owner() const {
  return tensor_.defined() && is_sole_handle(tensor_) && may_be_written(tensor_);
}

bool FrozenTensor::thaws_at_once() const {
  return sole_owner() && (!use_ || use_->is_in_alone(current_stream(tensor_.device())));
}

const void* FrozenTensor::raw() const {
  GRAPEVINE_CHECK(defined(), "raw() of an empty FrozenTensor");
  check_untouched();
  return tensor_.data_ptr();
}

const at::Tensor& FrozenTensor::read() const {
  if (defined()) check_untouched();
  if (use_) use_->read_in(tensor_, current_stream(tensor_.device()));
  return tensor_;
}

const at::Tensor& FrozenTensor::read_on(at::Device reader) const {
  if (defined()) check_untouched();
  if (use_) use_->read_in(tensor_, current_stream(reader));
  return tensor_;
}

FrozenTensor FrozenTensor::on(at::Device device) const {
  if (!defined() || tensor_.device() == device) return *this;
  const PlainMode mode;
  return FrozenTensor(at::empty(tensor_.sizes(), tensor_.options().device(device)).copy_(read()));
}

void FrozenTensor::check_untouched() const {
  GRAPEVINE_CHECK(tensor_._version() == version_,
                  "a frozen tensor was written through a handle from read(): version ",
                  tensor_._version(), " instead of ", version_, "; copy before writing");
}

void FrozenTensor::check_on_host() const {
  GRAPEVINE_CHECK(defined(), "data() of an empty FrozenTensor");
  GRAPEVINE_CHECK(tensor_.device().is_cpu(), "data() of a tensor on ", tensor_.device());
  check_untouched();
}

}  // namespace grapevine
