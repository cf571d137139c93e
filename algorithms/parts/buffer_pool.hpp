// BufferPool: flat tensors of one size that a role uses again and again.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "messages/frozen_tensor.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

// A step of a 25 M parameter model touches 100 MB buffers; fresh ones cost page faults worth a
// memory pass each. Retired tensors may still be read by others (shares on their way): they are
// handed out only once the last reader has dropped them. So a tensor that is sent may be retired
// before it is sent.
//
// In the host's memory alone. A writer of a device's used buffer would wait for all work that the
// readers' streams hold, such as the gradient pass that is running; the device's allocator gives
// memory out again when its readers are done, without a wait in any stream.
//
// Not thread-safe: belongs to one role.
class BufferPool {
 public:
  // Uninitialised [numel] float32 on the device of `like`, which is float32 and has that size. A
  // new one lies in memory of the kind of `like` (empty_successor): where a rank's first model lies
  // in pinned memory, so do its successors and the z that the pool's owner computes from them.
  at::Tensor take(const FrozenTensor& like);
  // The values of `values`, [d] float32, in such a buffer.
  at::Tensor copy_of(const at::Tensor& values, const FrozenTensor& like);
  // Keeps one buffer, and as many more as add_capacity() says; the oldest goes first. A buffer on a
  // device goes to its allocator. A buffer that was here twice would never be
  // free.
  void give(FrozenTensor retired);
  // One is enough for a share that peers still read while the next model is written.
  void add_capacity(std::size_t buffers) { capacity_ += buffers; }

 private:
  std::size_t capacity_ = 1;
  std::vector<FrozenTensor> retired_;
};

// x <- f(x), in place, where f(x) changes its tensor: of a copy where another holder reads x.
template <class F>
void change_in_place(FrozenTensor& x, F&& f) {
  at::Tensor own = std::move(x).thaw();
  f(own);
  x = FrozenTensor::freeze(std::move(own));
}

// x <- f(x), where f(out, x) writes `out`: in place (then `out` is x) where no other handle shares
// x and, on a device, no other stream has used it; else into another buffer. Into another one also
// where x, as at the start of a run, lies outside of the send memory that there is: each share of
// it would be copied.
template <class F>
void update_frozen(FrozenTensor& x, BufferPool& pool, F&& f) {
  if (x.thaws_at_once() && is_sent_in_place(x))
    return change_in_place(x, [&f](at::Tensor& own) { f(own, own); });
  at::Tensor out = pool.take(x);
  f(out, x.read());
  pool.give(std::move(x));
  x = FrozenTensor::freeze(std::move(out));
}

}  // namespace grapevine
