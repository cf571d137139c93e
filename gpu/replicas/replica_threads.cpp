#include "gpu/replicas/replica_threads.hpp"

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

ReplicaThreads::ReplicaThreads(std::size_t replicas) {
  for (std::size_t i = 0; i < replicas; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane& lane = *lanes_.back();
    lane.thread = std::thread([&lane] { loop(lane); });
  }
}

ReplicaThreads::~ReplicaThreads() {
  for (const auto& lane : lanes_) {
    const std::lock_guard<std::mutex> lock(lane->mutex);
    lane->end = true;
    lane->changed.notify_all();
  }
  for (const auto& lane : lanes_) lane->thread.join();
}

void ReplicaThreads::run(std::size_t replica, std::function<void()> work) {
  Lane& lane = *lanes_[replica];
  const std::lock_guard<std::mutex> lock(lane.mutex);
  GRAPEVINE_CHECK(!lane.busy, "replica ", replica, " is at work already");
  lane.busy = true;
  lane.work = std::move(work);
  lane.changed.notify_all();
}

void ReplicaThreads::wait() {
  for (const auto& lane : lanes_) {
    std::unique_lock<std::mutex> lock(lane->mutex);
    lane->changed.wait(lock, [&] { return !lane->busy; });
  }
}

void ReplicaThreads::loop(Lane& lane) {
  std::unique_lock<std::mutex> lock(lane.mutex);
  for (;;) {
    lane.changed.wait(lock, [&] { return lane.work || lane.end; });
    if (!lane.work) return;
    std::function<void()> work = std::exchange(lane.work, nullptr);
    lock.unlock();
    work();
    work = nullptr;  // what it holds ends before the caller continues
    lock.lock();
    lane.busy = false;
    lane.changed.notify_all();
  }
}

}  // namespace grapevine
