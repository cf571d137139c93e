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

FrozenTensor frozen_to_send(const at::Tensor& t) {
  at::Tensor copy = empty_to_send(t.sizes(), t.scalar_type(), t.device());
  copy.copy_(t);
  return FrozenTensor::freeze(std::move(copy));
}

bool is_sent_in_place(const FrozenTensor& t) {
  if (t.nbytes() < kSmallest || !t.device().is_cpu()) return true;
  const auto memory = send_memory();
  return memory == nullptr || memory->owns(t.read());
}

}  // namespace grapevine
