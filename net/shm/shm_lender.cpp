#include "net/shm/shm_lender.hpp"

#include <poll.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine::shm {

Lender::Lender(std::shared_ptr<SharedMemory> outbox, FileDescriptor lease)
    : memory_(std::move(outbox)),
      box_(*reinterpret_cast<ShmOutbox*>(memory_->data())),
      lease_(std::move(lease)) {
  for (std::uint32_t slot = kSlots; slot > 0; --slot) free_.push_back(slot - 1);
}

std::optional<std::uint32_t> Lender::lend(FrozenTensor payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty() || orphan_) return std::nullopt;
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  lent_[slot] = std::move(payload);
  return slot;
}

Expected<void> Lender::collect() {
  if (box_.returned.load(std::memory_order_relaxed) == collected_) return {};  // nearly always
  std::vector<FrozenTensor> done;  // let go of after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  return collect_locked(done);
}

// REQUIRES: mutex_ is held.
Expected<void> Lender::collect_locked(std::vector<FrozenTensor>& done) {
  const Error damaged{Errc::protocol, "it returned a payload that it does not have"};
  if (broken_) return damaged;
  const std::uint64_t returned = box_.returned.load(std::memory_order_acquire);
  broken_ = returned - collected_ > kSlots;
  while (!broken_ && collected_ != returned) {
    const std::uint32_t slot = box_.returns[collected_ % kSlots];
    broken_ = slot >= kSlots || !lent_[slot].defined();
    if (broken_) break;
    done.push_back(std::exchange(lent_[slot], FrozenTensor()));
    free_.push_back(slot);
    ++collected_;
  }
  if (broken_) return damaged;
  return {};
}

void Lender::orphan() {
  const std::lock_guard<std::mutex> lock(mutex_);
  orphan_ = true;
}

bool Lender::lease_ended() const {
  pollfd lease{lease_.get(), 0, 0};  // a hang-up is always reported
  return ::poll(&lease, 1, 0) > 0 && (lease.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool Lender::is_over() {
  std::vector<FrozenTensor> done;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!orphan_) return false;
  const Expected<void> ignored = collect_locked(done);
  static_cast<void>(ignored);
  if (free_.size() == kSlots) return true;
  if (!lease_ended()) return false;
  for (FrozenTensor& payload : lent_)
    if (payload.defined()) done.push_back(std::exchange(payload, FrozenTensor()));
  return true;
}

}  // namespace grapevine::shm
