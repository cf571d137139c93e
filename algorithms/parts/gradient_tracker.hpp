// GradientTracker: an estimate of the mean gradient of all ranks, which ranks mix with their
// models.
//
// Source: gradient tracking: Di Lorenzo & Scutari 2016; with push-sum Nedic, Olshevsky, Shi 2017
// (push-DIGing). y_0 = g_0;  y <- W y + g(x_new) - g(x). With local steps y changes at each of them
// and is mixed at the exchange: LU-GT, Nguyen, Alghunaim, Yuan, Uribe 2022. A part.
// Conservation: the sum of y over all ranks, and over shares in flight, is that of the newest g, as
//   long as no rank dies: its y is lost, and the others keep what it had given.
#pragma once
#include <ATen/core/Tensor.h>

#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/parts/recycled_memory.hpp"
#include "algorithms/role.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role, as `pool` does. Memory: 3 d floats, for y, the newest
// gradient and the estimate that a step takes, in whose memory the next gradient comes; 2 d for
// what is mixed, and in `pool` 2 d for what is mixed next, while peers read it.
class GradientTracker {
 public:
  // Of models of d. `pool`: of x, and of what is mixed; it outlives this.
  GradientTracker(std::int64_t d, at::Device device, BufferPool& pool);

  // A new gradient, [d]; its memory is kept.
  void add(at::Tensor gradient);
  // y, [d], in memory of its own, which may be that of a later gradient. REQUIRES: add() or join().
  at::Tensor estimate() const { return estimates_.copy_of(y_); }

  // x and y lie in one vector, [2d], while they are mixed: from join() to split(). Before the first
  // gradient y is 0: where a round precedes it, the model is given with it.
  ModelState& mixed() { return mixed_; }
  void join(const ModelState& model);
  void split(ModelState& model);

  void fields(Archive& a);

 private:
  void begin_at_zero();

  const std::int64_t d_;
  BufferPool& pool_;
  at::Tensor y_, newest_;  // [d]; undefined before the first gradient
  const RecycledMemory estimates_;
  ModelState mixed_;
};

}  // namespace grapevine
