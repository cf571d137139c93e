// BufferPool: flat tensors of one size that a role uses again and again.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// A step of a 25 M parameter model touches 100 MB buffers; fresh ones cost page faults worth a
// memory pass each. Retired tensors may still be read by others (shares on their way): they are
// handed out only once the last reader has dropped them.
//
// Not thread-safe: belongs to one role.
class BufferPool {
 public:
  // Uninitialised [numel] float32.
  at::Tensor take(std::int64_t numel);
  // Keeps at most kCapacity buffers; the oldest goes first.
  void give(FrozenTensor retired);

 private:
  // One is enough: a share that peers still read while the next model is written.
  static constexpr std::size_t kCapacity = 1;
  std::vector<FrozenTensor> retired_;
};

// x <- f(x), where f(out, x) writes `out`: in place where no other handle shares x (then `out` is
// x), else into another buffer.
template <class F>
void update_frozen(FrozenTensor& x, BufferPool& pool, F&& f) {
  if (x.sole_owner()) {
    at::Tensor own = std::move(x).thaw();
    f(own, own);
    x = FrozenTensor::freeze(std::move(own));
  } else {
    at::Tensor out = pool.take(x.numel());
    f(out, x.read());
    pool.give(std::move(x));
    x = FrozenTensor::freeze(std::move(out));
  }
}

}  // namespace grapevine
