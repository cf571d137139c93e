#include "gpu/replicas/launch_gate.hpp"

#include <map>
#include <string>

namespace grapevine {
namespace {

// Passes of this thread, so that one inside another does not wait for a gate that waits for both.
int& depth(const LaunchGate& gate) {
  thread_local std::map<const LaunchGate*, int> depths;
  return depths[&gate];
}

}  // namespace

LaunchGate::Pass::Pass(LaunchGate& gate, Duration timeout) : gate_(gate) {
  if (depth(gate_) > 0) {
    granted_ = true;
  } else {
    std::unique_lock<std::mutex> lock(gate_.mutex_);
    ++gate_.waiting_;
    granted_ = gate_.changed_.wait_for(lock, timeout,
                                       [this] { return !gate_.closed_ && gate_.closing_ == 0; });
    --gate_.waiting_;
    if (granted_) ++gate_.passes_;
  }
  if (granted_) ++depth(gate_);
}

LaunchGate::Pass::~Pass() {
  if (!granted_ || --depth(gate_) > 0) return;
  const std::lock_guard<std::mutex> lock(gate_.mutex_);
  --gate_.passes_;
  gate_.changed_.notify_all();
}

Expected<void> LaunchGate::close(Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++closing_;
  const bool free = changed_.wait_for(lock, timeout, [this] { return !closed_ && passes_ == 0; });
  --closing_;
  closed_ = closed_ || free;
  changed_.notify_all();
  if (free) return {};
  return Error{Errc::timeout, "a collective was not launched within " +
                                  std::to_string(static_cast<int>(to_seconds(timeout))) +
                                  " s: another call waits for a GPU, see nvidia-smi"};
}

void LaunchGate::open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = false;
  changed_.notify_all();
}

int LaunchGate::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

LaunchGate& launch_gate() {
  static auto* const gate = new LaunchGate;  // outlives the threads that end after main()
  return *gate;
}

}  // namespace grapevine
