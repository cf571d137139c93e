// KnownLosses: processes that a run has lost, as its supervisor reports them to this process.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace grapevine {

// A process that joins a run connects to all of its processes, and one of them may be lost
// meanwhile. The transport then stops waiting for it (ConnectOptions::lost); it takes reports of
// losses only once it is connected. Thread-safe.
class KnownLosses {
 public:
  using Report = std::function<void(std::int32_t process)>;

  // `report`: to the transport.
  explicit KnownLosses(Report report) : report_(std::move(report)) {}

  void add(std::int32_t process) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!connected_) return lost_.push_back(process);
    }
    report_(process);
  }
  bool has(std::int32_t process) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::find(lost_.begin(), lost_.end(), process) != lost_.end();
  }
  // From now on losses are reported; those of before now.
  void on_connected() {
    std::vector<std::int32_t> lost;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      connected_ = true;
      lost = lost_;
    }
    for (const std::int32_t process : lost) report_(process);
  }

 private:
  const Report report_;
  mutable std::mutex mutex_;
  bool connected_ = false;
  std::vector<std::int32_t> lost_;  // until it was connected
};

}  // namespace grapevine
