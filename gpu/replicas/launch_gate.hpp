// LaunchGate: keeps calls that wait for a GPU away from the launches of a collective.
#pragma once
#include <condition_variable>
#include <mutex>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// A collective occupies each of its GPUs until it has been launched on all of them. A call that
// waits for a busy GPU (cudaMalloc, cudaHostAlloc, cudaFreeHost) and meanwhile keeps the driver
// from taking a launch on another one would therefore wait for ever. So such calls hold a Pass, and
// the gate is closed while a group launches. Closing waits for passes to end, and goes first:
// no new ones are given meanwhile.
//
// Thread-safe.
class LaunchGate {
 public:
  // Of the thread that made it, which may make more of them inside. It must not close the gate.
  class Pass {
   public:
    // Waits as long as the gate is closed, at most `timeout`.
    Pass(LaunchGate& gate, Duration timeout);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    bool granted() const { return granted_; }  // false: the gate stayed closed

   private:
    LaunchGate& gate_;
    bool granted_ = false;
  };

  // Returns when no pass is held. Errors: timeout after `timeout`; the gate is then as before.
  Expected<void> close(Duration timeout);
  void open();

  int waiting() const;  // threads that wait for a pass

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool closed_ = false;
  int closing_ = 0;  // threads that wait to close it
  int passes_ = 0;   // threads that have one
  int waiting_ = 0;
};

// Of this process: groups and waiting threads share them.
LaunchGate& launch_gate();

}  // namespace grapevine
