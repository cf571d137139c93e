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
// buffers [b]. In other memory, which a worker with a group does not need: the gradient [d] of each
// member. All float32. At each time either the lead or a member uses a vector: packets between them
// (replica_frames.hpp) pass it on. A copy is another handle on the same memory, which lasts as long
// as the last handle or tensor.
class ReplicaMemory {
 public:
  // Without memory for gradients. Errors (io): no memory.
  static Expected<ReplicaMemory> make(const ReplicaShape& shape);
  // The lead's. Errors (protocol): it is not of that shape; io.
  static Expected<ReplicaMemory> open(FileDescriptor file, const ReplicaShape& shape);

  // Memory for the gradients, for this handle and its later copies: of the lead, and the lead's for
  // a member. Idempotent. Errors: those of make(); of open().
  Expected<void> make_gradients();
  Expected<void> open_gradients(FileDescriptor file);

  const ReplicaShape& shape() const { return shape_; }
  // To be passed to members. REQUIRES: made here.
  int descriptor() const { return memory_->descriptor(); }
  int descriptor_of_gradients() const { return gradients_->descriptor(); }

  // Each call gives the only tensor on a storage of its own, which FrozenTensor takes without a
  // copy.
  at::Tensor parameters() const;  // [d]
  at::Tensor buffers() const;     // [b]
  // Of a member: 0 < replica < replicas.
  at::Tensor buffers_of(std::int32_t replica) const;  // [b]
  // The same. REQUIRES: memory for the gradients.
  at::Tensor gradient_of(std::int32_t replica) const;  // [d]

 private:
  ReplicaMemory(std::shared_ptr<shm::SharedMemory> memory, const ReplicaShape& shape)
      : memory_(std::move(memory)), shape_(shape) {}
  // Of a member, from 0.
  std::uint64_t index_of(std::int32_t replica) const;

  std::shared_ptr<shm::SharedMemory> memory_;
  std::shared_ptr<shm::SharedMemory> gradients_;  // null: there are none
  ReplicaShape shape_;
};

}  // namespace grapevine
