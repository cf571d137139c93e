// ErrorFeedback: a sender keeps the values that compression leaves out, for later. A part.
//
// Sources: Seide et al. 2014; Karimireddy et al. 2019. With the residual e of a rank:
//   e <- e + g;  send C(e);  e <- e - C(e)
// or e <- beta e + g (Sarfi et al. 2025, SparseLoCo: the residual in place of outer momentum).
// Momentum correction (Lin et al., "Deep Gradient Compression", ICLR 2018, Algorithm 1 and section
// 3.2), with the optimizer's factor m; nesterov as in their released code:
//   u <- m u + g | m (u + g);  e <- e + u | e + u + g;  send C(e);  e <- e - C(e)
//   masking: u <- 0 at the entries that were sent, once they are in the result: where ranks select
//   from their sum, rejected entries keep their momentum, as they keep their value
// Without error feedback it sends C(g) and keeps nothing.
// Deviations: where ranks select as they merge (gTop-k), an entry that a merge on another rank
//   rejected counts as sent if another subtree has brought its index into the result: that rank
//   keeps its value, but its momentum here is masked.
//
// Not thread-safe: belongs to one role. Memory: d floats, 2 d with momentum correction, and with
// masking the entries that were sent.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "algorithms/archive.hpp"
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/kernels/sparse_vector.hpp"

namespace grapevine {

struct ErrorFeedbackSettings {
  bool enabled = true;
  double momentum = 0;  // of the momentum correction; 0: none
  bool nesterov = false;
  bool masking = true;
  double decay = 1;  // beta: of the residual, before each vector is added; in (0, 1]
};

class ErrorFeedback {
 public:
  explicit ErrorFeedback(const ErrorFeedbackSettings& settings) : settings_(settings) {}

  // `g`: [d] float32, contiguous, this step's vector; its values are unspecified afterwards.
  // Undefined: none, the residual alone, which is not empty then.
  // All calls give the same d. The state does not depend on the density.
  Packed pack(at::Tensor& g, const Compressor& compressor, double epoch, Rng& rng);
  // Once the result is known, before the next pack(): returns `rejected`, the sent entries that are
  // not in the result, to the residual; `selected`: the entries of the result, where it is not the
  // sum of all sent entries. Without error feedback rejected entries are lost, as the rest is.
  void restore(const SparseVector& rejected,
               const std::optional<SparseVector>& selected = std::nullopt);
  // Returns a sent vector that its receiver refused to the residual. `packed`: made by pack() with
  // the same compressor.
  void give_back(const Packed& packed, const Compressor& compressor);

  // e, [d]; undefined before the first pack() and without error feedback.
  const at::Tensor& residual() const { return residual_; }
  // u, [d]; undefined before the first pack() and without momentum correction.
  const at::Tensor& velocity() const { return velocity_; }
  // [d] of the calls of pack(), or undefined.
  void set_residual(at::Tensor residual) { residual_ = std::move(residual); }
  void set_velocity(at::Tensor velocity) { velocity_ = std::move(velocity); }

  // For vectors of d. Errors (bad_input): entries of another type or size.
  void fields(Archive& a, std::int64_t d);

 private:
  void accumulate(at::Tensor& g);
  void sent_fields(Archive& a, std::int64_t d);

  ErrorFeedbackSettings settings_;  // constant after construction
  at::Tensor residual_;             // e
  at::Tensor velocity_;             // u
  SparseVector sent_;               // with masking: entries whose result is not known yet
};

}  // namespace grapevine
