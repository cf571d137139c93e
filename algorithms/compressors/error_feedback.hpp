// ErrorFeedback: what compression left over, kept by its sender and sent later. A part.
//
// Sources: Seide et al. 2014; Karimireddy et al. 2019. With the residual e of a rank:
//   e <- e + g;  send C(e);  e <- e - C(e)
// Momentum correction (Lin et al., "Deep Gradient Compression", ICLR 2018, Algorithm 1 and section
// 3.2), with the optimizer's factor m; nesterov as in their released code:
//   u <- m u + g | m (u + g);  e <- e + u | e + u + g;  send C(e);  e <- e - C(e)
//   masking: u <- 0 at the entries that were sent
// Without error feedback it sends C(g) and keeps nothing.
//
// Not thread-safe: belongs to one role. Memory: d floats, 2 d with momentum correction.
#pragma once
#include <ATen/core/Tensor.h>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/sparse_vector.hpp"
#include "algorithms/state_dict.hpp"

namespace grapevine {

struct ErrorFeedbackSettings {
  bool enabled = true;
  double momentum = 0;  // of the momentum correction; 0: none
  bool nesterov = false;
  bool masking = true;
};

class ErrorFeedback {
 public:
  explicit ErrorFeedback(const ErrorFeedbackSettings& settings) : settings_(settings) {}

  // `g`: [d] float32, contiguous, this step's vector; what it holds afterwards has no meaning.
  // All calls give the same d. Nothing of it changes with the density.
  Packed pack(at::Tensor& g, const Compressor& compressor, double epoch, Rng& rng);
  // Entries that were sent and did not get into the result come back. Without error feedback they
  // are lost, as the rest is.
  void restore(const SparseVector& rejected);
  // All of a vector that was sent, and that its receiver refused, comes back. `packed`: made by
  // pack() with the same compressor.
  void give_back(const Packed& packed, const Compressor& compressor);

  // e, [d]; undefined before the first pack() and without error feedback.
  const at::Tensor& residual() const { return residual_; }

  StateDict save() const;
  // For vectors of d. Errors (bad_input): entries of another type or size; this is then as before.
  Expected<void> load(const StateDict& state, std::int64_t d);

 private:
  void accumulate(at::Tensor& g);

  const ErrorFeedbackSettings settings_;
  at::Tensor residual_;  // e
  at::Tensor velocity_;  // u
};

}  // namespace grapevine
