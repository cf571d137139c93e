// Server rules: a client's commits, and their application by a server. A part: pure kernels.
//
// All tensors are [k] float32, contiguous, on one device; the outputs have their size already.
// Symbols: theta central variable, s the copy of it that a client computed its gradient at, delta
// the client's step, m its proxy, tau staleness, lambda window.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Elements [begin, begin + size) of the flat parameters: the slice of server `index` of `servers`.
// Slices differ by one element at most, the larger ones first.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
Slice slice_of(std::int64_t dimension, std::int32_t servers, std::int32_t index);
// That of a vector; the vector itself, without a copy, where the slice is all of it. Else in memory
// from empty_to_send(), as it is a message, or the model of a server, which no device reads.
FrozenTensor part_of(const FrozenTensor& vector, const Slice& slice);
// The other way: [dimension], `part` in its place and zeros elsewhere; `part` itself, without a
// copy, where it is all. REQUIRES: the slice's size.
FrozenTensor among_zeros(const FrozenTensor& part, const Slice& slice, std::int64_t dimension);

namespace kernels {

// delta <- -lr (gradient + weight_decay s), written over `gradient`; m <- momentum m + delta.
// Gradient energy matching (Hermans & Louppe 2018): the proxy is regular momentum SGD.
// Memory: reads gradient, s, m, writes gradient, m.
void advance_proxy(at::Tensor& gradient, at::Tensor& m, const at::Tensor& s, double lr,
                   double momentum, double weight_decay);

// u <- pi delta, with pi = clamp((kappa |m| - |theta - s|) / (|delta| + 1e-12), 0, 5) for each
// element: the central variable moves no further from s than kappa times the proxy would.
// Epsilon is added to |delta|, not to delta, so that delta = 0 gives u = 0; the bounds are those of
// the published code. Memory: reads delta, m, theta, s, writes u.
void match_energy_into(at::Tensor& u, const at::Tensor& delta, const at::Tensor& m,
                       const at::Tensor& theta, const at::Tensor& s, double kappa);

// out <- theta + a update; out may be theta. Staleness-aware: a = 1 / (tau + 1).
void commit_into(at::Tensor& out, const at::Tensor& theta, const at::Tensor& update, double a);

// e <- alpha (x - centre) (Zhang et al. 2015): the client subtracts it, the centre adds it.
void elastic_into(at::Tensor& e, const at::Tensor& x, const at::Tensor& centre, double alpha);

}  // namespace kernels
}  // namespace grapevine
