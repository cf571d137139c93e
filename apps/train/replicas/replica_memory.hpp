// ReplicaMemory: the vectors that a lead and its members share.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"
#include "net/shm/shm_memory.hpp"

namespace grapevine {

// Of a worker; the same in all its processes.
struct ReplicaShape {
  std::int64_t parameters = 0;  // d > 0
  std::int64_t buffers = 0;     // b
  std::int32_t replicas = 0;    // > 1, the lead included

  bool operator==(const ReplicaShape& other) const {
    return parameters == other.parameters && buffers == other.buffers && replicas == other.replicas;
  }
};

// In this order, each from the beginning of a page: z [d], buffers [b]; then for each member its
// gradient [d] and its buffers [b]. All float32. At each time either the lead or a member uses a
// vector: packets between them (replica_frames.hpp) pass it on. A copy is another handle on the
// same memory, which lasts as long as the last handle or tensor.
class ReplicaMemory {
 public:
  // Errors (io): no memory.
  static Expected<ReplicaMemory> make(const ReplicaShape& shape);
  // The lead's. Errors (protocol): it is not of that shape; io.
  static Expected<ReplicaMemory> open(FileDescriptor file, const ReplicaShape& shape);

  const ReplicaShape& shape() const { return shape_; }
  // To be passed to members. REQUIRES: made here.
  int descriptor() const { return memory_->descriptor(); }

  // Each call gives the only tensor on a storage of its own, which FrozenTensor takes without a
  // copy.
  at::Tensor parameters() const;  // [d]
  at::Tensor buffers() const;     // [b]
  // Of a member: 0 < replica < replicas.
  at::Tensor gradient_of(std::int32_t replica) const;  // [d]
  at::Tensor buffers_of(std::int32_t replica) const;   // [b]

 private:
  ReplicaMemory(std::shared_ptr<shm::SharedMemory> memory, const ReplicaShape& shape)
      : memory_(std::move(memory)), shape_(shape) {}
  at::Tensor vector_at(std::uint64_t begin, std::int64_t count) const;
  std::uint64_t begin_of(std::int32_t replica) const;

  std::shared_ptr<shm::SharedMemory> memory_;
  ReplicaShape shape_;
};

}  // namespace grapevine
