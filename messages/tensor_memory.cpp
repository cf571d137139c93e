#include "messages/tensor_memory.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <mutex>
#include <utility>

namespace grapevine {
namespace {

// Below, the copy into send memory costs less than its bookkeeping.
constexpr std::uint64_t kSmallest = 16 << 10;

void destroy(void* context) { delete static_cast<TensorMemory*>(context); }

struct Current {
  std::mutex mutex;
  std::weak_ptr<SendMemory> memory;  // guarded by mutex
};

Current& current() {
  static Current instance;
  return instance;
}

std::shared_ptr<SendMemory> send_memory() {
  Current& c = current();
  const std::lock_guard<std::mutex> lock(c.mutex);
  return c.memory.lock();
}

// The memory of a part that is lent.
class PartMemory final : public TensorMemory {
 public:
  PartMemory(at::Tensor owner, std::shared_ptr<std::atomic<bool>> released)
      : owner_(std::move(owner)), released_(std::move(released)) {}
  ~PartMemory() override {
    owner_ = at::Tensor();
    released_->store(true, std::memory_order_release);  // after all reads
  }
  bool exclusive() const override { return false; }

  const at::Tensor& owner() const { return owner_; }

 private:
  at::Tensor owner_;
  const std::shared_ptr<std::atomic<bool>> released_;
};

// Of which successors of `like` are to be; null: any memory serves.
const TensorMemory* memory_for_successors(const FrozenTensor& like) {
  const bool on_host = like.defined() && like.device().is_cpu();
  return on_host && !has_send_memory() ? memory_of(like.read()) : nullptr;
}

std::uint64_t bytes_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  return static_cast<std::uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
}

}  // namespace

// Made without the dispatcher, as FrozenTensor does.
at::Tensor tensor_on(void* data, at::IntArrayRef sizes, at::ScalarType dtype,
                     std::unique_ptr<TensorMemory> memory) {
  c10::DataPtr pointer(data, memory.release(), &destroy, c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes_of(sizes, dtype), std::move(pointer));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

at::Tensor TensorMemory::adopt(at::Tensor t) const {
  at::Tensor here = allocate_like(t.sizes(), t.scalar_type());
  return here.defined() ? here.copy_(t) : t;
}

TensorMemory* memory_of(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage()) return nullptr;
  const c10::DataPtr& pointer = t.storage().data_ptr();
  if (pointer.get_deleter() != &destroy) return nullptr;
  return static_cast<TensorMemory*>(pointer.get_context());
}

void use_send_memory(const std::shared_ptr<SendMemory>& memory) {
  Current& c = current();
  const std::lock_guard<std::mutex> lock(c.mutex);
  c.memory = memory;
}

at::Tensor empty_to_send(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  if (!device.is_cpu()) return at::empty(sizes, at::TensorOptions(dtype).device(device));
  if (bytes_of(sizes, dtype) >= kSmallest) {
    if (const auto memory = send_memory()) {
      at::Tensor t = memory->allocate(sizes, dtype);
      if (t.defined()) return t;
    }
  }
  return at::detail::empty_cpu(sizes, dtype);
}

bool has_send_memory() { return send_memory() != nullptr; }

at::Tensor empty_successor(const FrozenTensor& like, at::IntArrayRef sizes) {
  const TensorMemory* const memory = memory_for_successors(like);
  const at::Tensor t = memory ? memory->allocate_like(sizes, like.dtype()) : at::Tensor();
  return t.defined() ? t : empty_to_send(sizes, like.dtype(), like.device());
}

FrozenTensor frozen_successor(const FrozenTensor& like, at::Tensor&& t) {
  const TensorMemory* const memory = memory_for_successors(like);
  if (memory == nullptr || memory_of(t) != nullptr) return FrozenTensor::freeze(std::move(t));
  return FrozenTensor::freeze(memory->adopt(std::move(t)));
}

at::Tensor copy_to_send(const at::Tensor& t) {
  at::Tensor copy = empty_to_send(t.sizes(), t.scalar_type(), t.device());
  copy.copy_(t);
  return copy;
}

FrozenTensor frozen_to_send(const at::Tensor& t) { return FrozenTensor::freeze(copy_to_send(t)); }

FrozenTensor LentParts::lend(std::int64_t part, const at::Tensor& values) {
  const auto memory = values.is_cpu() ? send_memory() : nullptr;
  if (!values.is_cpu() || values.nbytes() < kSmallest || (memory && !memory->owns(values)))
    return frozen_to_send(values);
  auto released = std::make_shared<std::atomic<bool>>(false);
  at::Tensor lent = tensor_on(values.data_ptr(), values.sizes(), values.scalar_type(),
                              std::make_unique<PartMemory>(values, released));
  lent_[part] = std::move(released);
  return FrozenTensor::freeze(std::move(lent));
}

bool LentParts::take_back(std::int64_t part) {
  const auto found = lent_.find(part);
  if (found == lent_.end()) return true;
  const std::atomic<bool>& released = *found->second;
  if (!released.load(std::memory_order_acquire)) {
    if (const auto memory = send_memory()) memory->collect();
    if (!released.load(std::memory_order_acquire)) return false;
  }
  lent_.erase(found);
  return true;
}

const at::Tensor& owner_of_part(const at::Tensor& t) {
  const auto* const part = dynamic_cast<const PartMemory*>(memory_of(t));
  return part == nullptr ? t : part->owner();
}

bool is_sent_in_place(const FrozenTensor& t) {
  if (t.nbytes() < kSmallest || !t.device().is_cpu()) return true;
  const auto memory = send_memory();
  return memory == nullptr || memory->owns(t.read());
}

}  // namespace grapevine
