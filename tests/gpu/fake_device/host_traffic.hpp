// HostTraffic: bytes of the host's memory that operators read and write.
#pragma once
#include <cstdint>

namespace grapevine::fake {

struct HostBytes {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
};

// Counts, while it lives, the operators of LibTorch that its thread calls on tensors of the host:
// each reads its operands and writes its results once; what it writes in place it reads as well,
// outputs apart. An operator that calls others counts as these, or as itself where that is more,
// and views are nothing. What the fake device does counts as nothing: see Traffic for its copies
// from and to the host. Loops without an operator, as those over at most 1024 elements
// (algorithms/kernels), are not seen.
// One at a time on a thread.
class HostTraffic {
 public:
  HostTraffic();
  ~HostTraffic();
  HostTraffic(const HostTraffic&) = delete;
  HostTraffic& operator=(const HostTraffic&) = delete;

  HostBytes bytes() const;  // on the thread that made it

 private:
  const std::uint64_t callback_;
};

}  // namespace grapevine::fake
