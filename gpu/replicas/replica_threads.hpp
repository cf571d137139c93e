// ReplicaThreads: a thread for each replica, as long as the worker lives.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace grapevine {

// LibTorch keeps handles and workspaces of cuBLAS and cuDNN for each pair of a thread and a device,
// and a replica's generator belongs to its thread: so a replica always runs on the same one.
//
// For one calling thread.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(std::size_t replicas);
  // Waits for the work that is running.
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  std::size_t size() const { return lanes_.size(); }

  // REQUIRES: nothing is running on it; `work` does not throw.
  void run(std::size_t replica, std::function<void()> work);
  // Returns when nothing runs on any of them.
  void wait();

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex.
    std::function<void()> work;  // not begun yet
    bool busy = false;
    bool end = false;

    std::thread thread;
  };

  static void loop(Lane& lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace grapevine
