// The payloads that this process has lent to another one.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"
#include "net/file_descriptor.hpp"
#include "net/shm/shm_ring.hpp"

namespace grapevine::shm {

// Keeps each payload until the receiver has returned it, or has ended: also after the loss of the
// link, because a process that was only slow still reads its payloads. Thread-safe.
class Lender {
 public:
  // `lease`: the end of a pipe whose other end closes with the receiver's last handle on anything
  // that was lent to it.
  Lender(std::shared_ptr<SharedMemory> outbox, FileDescriptor lease);

  // The slot by which the receiver returns it; none: as many as possible are lent.
  std::optional<std::uint32_t> lend(FrozenTensor payload);
  // Releases the payloads that were returned. Errors (protocol): the receiver returns a payload
  // that it does not have; from then on no payload is released until the lease ends.
  Expected<void> collect();

  // The link is lost, nothing more is lent: payloads end with the lease.
  void orphan();
  // Nothing is left to wait for. Lets go of everything where the lease has ended.
  bool is_over();

 private:
  Expected<void> collect_locked(std::vector<FrozenTensor>& done);
  bool lease_ended() const;

  const std::shared_ptr<SharedMemory> memory_;
  ShmOutbox& box_;
  const FileDescriptor lease_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::array<FrozenTensor, kSlots> lent_;  // undefined: the slot is free
  std::vector<std::uint32_t> free_;
  std::atomic<std::uint64_t> collected_{0};  // returns; read without mutex_ as well
  bool broken_ = false;
  bool orphan_ = false;
};

}  // namespace grapevine::shm
