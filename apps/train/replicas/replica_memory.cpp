#include "apps/train/replicas/replica_memory.hpp"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

std::uint64_t vector_bytes(std::int64_t count) {
  return shm::whole_pages(sizeof(float) * static_cast<std::uint64_t>(count));
}

// A vector of each kind.
std::uint64_t pair_bytes(const ReplicaShape& shape) {
  return vector_bytes(shape.parameters) + vector_bytes(shape.buffers);
}

std::uint64_t all_bytes(const ReplicaShape& shape) {
  return pair_bytes(shape) * static_cast<std::uint64_t>(shape.replicas);
}

}  // namespace

Expected<ReplicaMemory> ReplicaMemory::make(const ReplicaShape& shape) {
  auto memory = shm::SharedMemory::make(all_bytes(shape));
  if (!memory) return memory.error();
  return ReplicaMemory(*std::move(memory), shape);
}

Expected<ReplicaMemory> ReplicaMemory::open(FileDescriptor file, const ReplicaShape& shape) {
  auto memory = shm::SharedMemory::open(std::move(file), all_bytes(shape));
  if (!memory) return memory.error();
  return ReplicaMemory(*std::move(memory), shape);
}

at::Tensor ReplicaMemory::parameters() const { return vector_at(0, shape_.parameters); }

at::Tensor ReplicaMemory::buffers() const {
  return vector_at(vector_bytes(shape_.parameters), shape_.buffers);
}

at::Tensor ReplicaMemory::gradient_of(std::int32_t replica) const {
  return vector_at(begin_of(replica), shape_.parameters);
}

at::Tensor ReplicaMemory::buffers_of(std::int32_t replica) const {
  return vector_at(begin_of(replica) + vector_bytes(shape_.parameters), shape_.buffers);
}

std::uint64_t ReplicaMemory::begin_of(std::int32_t replica) const {
  GRAPEVINE_CHECK(replica > 0 && replica < shape_.replicas, "replica ", replica, " of ",
                  shape_.replicas);
  return pair_bytes(shape_) * static_cast<std::uint64_t>(replica);
}

at::Tensor ReplicaMemory::vector_at(std::uint64_t begin, std::int64_t count) const {
  return at::from_blob(
      memory_->data() + begin, {count}, [memory = memory_](void*) {},
      at::TensorOptions(at::kFloat));
}

}  // namespace grapevine
