#include "gpu/replicas/replica_launch.hpp"

namespace grapevine {
namespace {

class Opener {
 public:
  explicit Opener(LaunchGate& gate) : gate_(gate) {}
  ~Opener() { gate_.open(); }
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

 private:
  LaunchGate& gate_;
};

}  // namespace

Expected<void> ReplicaLaunch::run(std::size_t replica, Duration timeout,
                                  const std::function<Expected<void>()>& launch) {
  // The gate is closed when all are here: on their way they may need a pass.
  if (auto here = barrier_.wait(timeout); !here) return here;
  if (replica > 0) return launch_together(timeout, launch);
  if (auto closed = gate_.close(timeout); !closed) {
    barrier_.end();
    return closed;
  }
  const Opener opener(gate_);
  return launch_together(timeout, launch);
}

Expected<void> ReplicaLaunch::launch_together(Duration timeout,
                                              const std::function<Expected<void>()>& launch) {
  if (auto closed = barrier_.wait(timeout); !closed) return closed;
  if (auto launched = launch(); !launched) {
    barrier_.end();
    return launched;
  }
  return barrier_.wait(timeout);
}

}  // namespace grapevine
