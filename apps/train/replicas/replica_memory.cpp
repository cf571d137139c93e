#include "apps/train/replicas/replica_memory.hpp"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

std::uint64_t vector_bytes(std::int64_t count) {
  return shm::whole_pages(sizeof(float) * static_cast<std::uint64_t>(count));
}

std::uint64_t members_of(const ReplicaShape& shape) {
  return static_cast<std::uint64_t>(shape.replicas) - 1;
}

// z and the buffers of all replicas.
std::uint64_t all_bytes(const ReplicaShape& shape) {
  return vector_bytes(shape.parameters) + vector_bytes(shape.buffers) * (members_of(shape) + 1);
}

std::uint64_t gradient_bytes(const ReplicaShape& shape) {
  return vector_bytes(shape.parameters) * members_of(shape);
}

at::Tensor vector_at(const std::shared_ptr<shm::SharedMemory>& memory, std::uint64_t begin,
                     std::int64_t count) {
  return at::from_blob(
      memory->data() + begin, {count}, [memory](void*) {}, at::TensorOptions(at::kFloat));
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

Expected<void> ReplicaMemory::make_gradients() {
  if (gradients_) return {};
  auto memory = shm::SharedMemory::make(gradient_bytes(shape_));
  if (!memory) return memory.error();
  gradients_ = *std::move(memory);
  return {};
}

Expected<void> ReplicaMemory::open_gradients(FileDescriptor file) {
  auto memory = shm::SharedMemory::open(std::move(file), gradient_bytes(shape_));
  if (!memory) return memory.error();
  gradients_ = *std::move(memory);
  return {};
}

at::Tensor ReplicaMemory::parameters() const { return vector_at(memory_, 0, shape_.parameters); }

at::Tensor ReplicaMemory::buffers() const {
  return vector_at(memory_, vector_bytes(shape_.parameters), shape_.buffers);
}

at::Tensor ReplicaMemory::buffers_of(std::int32_t replica) const {
  const std::uint64_t before = vector_bytes(shape_.buffers) * (index_of(replica) + 1);
  return vector_at(memory_, vector_bytes(shape_.parameters) + before, shape_.buffers);
}

at::Tensor ReplicaMemory::gradient_of(std::int32_t replica) const {
  GRAPEVINE_CHECK(gradients_, "there is no memory for gradients");
  return vector_at(gradients_, vector_bytes(shape_.parameters) * index_of(replica),
                   shape_.parameters);
}

std::uint64_t ReplicaMemory::index_of(std::int32_t replica) const {
  GRAPEVINE_CHECK(replica > 0 && replica < shape_.replicas, "replica ", replica, " of ",
                  shape_.replicas);
  return static_cast<std::uint64_t>(replica) - 1;
}

}  // namespace grapevine
