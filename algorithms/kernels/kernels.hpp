// Kernels: the arithmetic of the algorithms on flat parameter tensors, each one pass over memory.
//
// All tensors are [d] float32, contiguous, on one device, that of the models; the outputs have
// their size already. Sums are taken in float32, element by element, so that results do not depend
// on the device, on the number of threads or on alignment. Thread-safe on distinct outputs. A wrong
// type, layout or size is a broken invariant (GRAPEVINE_CHECK).
//
// Arithmetic that ATen does in one pass is an ATen call, which torch's dispatcher sends to the
// tensor's device. The fused steps are operators of the library "grapevine" (see kernels.cpp):
// loops on the CPU, a composition of ATen calls on devices that have registered no kernel of their
// own by TORCH_LIBRARY_IMPL(grapevine, <device>, library).
#pragma once
#include <ATen/core/Tensor.h>

namespace grapevine::kernels {

// x <- from. Memory: reads from, writes x.
void copy(at::Tensor& x, const at::Tensor& from);

// x <- a x. Memory: reads x, writes x.
void scale(at::Tensor& x, double a);

// out <- a x; out may be x. Memory: reads x, writes out.
void scale_into(at::Tensor& out, const at::Tensor& x, double a);

// x <- x + share. Memory: reads x and share, writes x.
void fold(at::Tensor& x, const at::Tensor& share);

// out <- a + b; out may be a or b. Memory: reads a and b, writes out.
void fold_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

// out <- a - b; out may be a or b. Memory: reads a and b, writes out.
void subtract_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

// The passive half of an average of two (Lian et al. 2018, Alg. 1):
//   half <- (other - x) / 2,  out <- x + half; `out` may be x, `half` is separate memory.
// Subtracting the same `half` from `other` keeps the sum x + other.
// Memory: reads x and other, writes out and half.
void meet_into(at::Tensor& out, at::Tensor& half, const at::Tensor& x, const at::Tensor& other);

// z <- x / w: the de-biased parameters of push-sum (Assran et al. 2019, Alg. 1, line 8); z may be
// x. REQUIRES: w > 0. Memory: reads x, writes z.
void debias(at::Tensor& z, const at::Tensor& x, double w);

// One step of stochastic gradient descent (Sutskever et al. 2013 in the form of torch::optim::SGD,
// without dampening):
//   g <- gradient + weight_decay x
//   v <- momentum v + g
//   u <- g + momentum v (nesterov) | v
//   x <- (x - lr u) scale
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;  // of x; of the numerator of z = x/w: that of z, divided by w
  bool nesterov = false;
  double scale = 1;  // push-sum keeps this share of the stepped numerator; 1: plain descent
};

// out <- the stepped x; `out` may be x, any other overlap is not allowed. `velocity` is v: zeros at
// the first step, undefined where momentum == 0. `gradient` overlaps nothing.
// Memory: reads x, gradient and v, writes out and v.
void sgd_step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& velocity,
                   const at::Tensor& gradient, const SgdStep& step);

// The same in place: x <- the stepped x.
void sgd_step(at::Tensor& x, at::Tensor& velocity, const at::Tensor& gradient, const SgdStep& step);

// x <- x min(1, c / |x|), |x| the L2 norm, which it returns. The norm is summed in double precision
// over stretches of fixed length: the bits do not depend on the number of threads.
// REQUIRES: c > 0. Memory: reads x twice, writes x; reads it once where nothing is clipped.
double clip(at::Tensor& x, double c);

}  // namespace grapevine::kernels
