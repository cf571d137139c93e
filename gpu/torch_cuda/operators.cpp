#include "gpu/torch_cuda/operators.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "gpu/cuda/quantised.hpp"
#include "gpu/cuda/server_steps.hpp"
#include "gpu/cuda/sparse.hpp"
#include "gpu/cuda/steps.hpp"
#include "gpu/cuda/top_k.hpp"

namespace grapevine {
namespace {

// The device of a tensor made the current one, and torch's current stream of it. Memory of torch's
// caching allocator that is taken and given back meanwhile is ordered by that stream.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const at::Tensor& x)
      : guard_(x.device()), stream_(c10::cuda::getCurrentCUDAStream(x.device().index())) {}
  cudaStream_t stream() const { return stream_.stream(); }

 private:
  const c10::cuda::CUDAGuard guard_;
  const c10::cuda::CUDAStream stream_;
};

// Operators know exceptions alone.
void require(const Expected<void>& result) { TORCH_CHECK(result.ok(), result.error().message); }

float* floats(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }

template <class T>
T* pointer(const at::Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}

at::Tensor workspace_of(std::size_t bytes, const at::Tensor& x) {
  return at::empty({static_cast<std::int64_t>(bytes)}, x.options().dtype(at::kByte));
}

cuda::StepFactors factors_of(double lr, double momentum, double weight_decay, bool nesterov,
                             double scale) {
  cuda::StepFactors factors;
  factors.lr = static_cast<float>(lr);
  factors.momentum = static_cast<float>(momentum);
  factors.weight_decay = static_cast<float>(weight_decay);
  factors.scale = static_cast<float>(scale);
  factors.nesterov = nesterov;
  return factors;
}

// ---- steps ----

void push_sum_step(at::Tensor& out, at::Tensor& z, const at::Tensor& x, const at::Tensor& share,
                   at::Tensor& velocity, const at::Tensor& gradient, double lr, double momentum,
                   double weight_decay, bool nesterov, double scale, double w) {
  const OnDeviceOf device(x);
  cuda::StepArrays arrays;
  arrays.out = floats(out);
  arrays.x = floats(x);
  arrays.share = floats(share);
  arrays.velocity = momentum != 0 ? floats(velocity) : nullptr;
  arrays.gradient = floats(gradient);
  arrays.z = floats(z);
  arrays.weight = w;
  require(cuda::sgd_step(arrays, factors_of(lr, momentum, weight_decay, nesterov, scale), x.numel(),
                         device.stream()));
}

void sgd_step(at::Tensor& out, const at::Tensor& x, at::Tensor& velocity,
              const at::Tensor& gradient, double lr, double momentum, double weight_decay,
              bool nesterov, double scale) {
  at::Tensor none;
  push_sum_step(out, none, x, none, velocity, gradient, lr, momentum, weight_decay, nesterov, scale,
                1);
}

void push_sum_fold(at::Tensor& out, at::Tensor& z, const at::Tensor& x, const at::Tensor& share,
                   double scale, double w) {
  const OnDeviceOf device(x);
  require(cuda::fold_share(floats(out), floats(z), floats(x), floats(share), scale, w, x.numel(),
                           device.stream()));
}

void meet(at::Tensor& out, at::Tensor& half, const at::Tensor& x, const at::Tensor& other) {
  const OnDeviceOf device(x);
  require(cuda::meet_into(floats(out), floats(half), floats(x), floats(other), x.numel(),
                          device.stream()));
}

void debias(at::Tensor& z, const at::Tensor& x, double w) {
  const OnDeviceOf device(x);
  require(cuda::debias(floats(z), floats(x), w, x.numel(), device.stream()));
}

// Waits for the stream: the norm is the caller's.
double clip(at::Tensor& x, double c) {
  const OnDeviceOf device(x);
  const at::Tensor workspace = workspace_of(cuda::clip_workspace_bytes(x.numel()), x);
  const at::Tensor norm = at::empty({1}, x.options().dtype(at::kDouble));
  require(cuda::clip(floats(x), c, norm.data_ptr<double>(), workspace.data_ptr(), x.numel(),
                     device.stream()));
  return norm.item<double>();
}

void gem_proxy(at::Tensor& gradient, at::Tensor& m, const at::Tensor& s, double lr, double momentum,
               double weight_decay) {
  const OnDeviceOf device(m);
  require(cuda::advance_proxy(floats(gradient), floats(m), floats(s), static_cast<float>(lr),
                              static_cast<float>(momentum), static_cast<float>(weight_decay),
                              m.numel(), device.stream()));
}

void gem_rescale(at::Tensor& u, const at::Tensor& delta, const at::Tensor& m,
                 const at::Tensor& theta, const at::Tensor& s, double kappa) {
  const OnDeviceOf device(u);
  require(cuda::match_energy(floats(u), floats(delta), floats(m), floats(theta), floats(s),
                             static_cast<float>(kappa), u.numel(), device.stream()));
}

// ---- sparse; room for the most there can be, and how many there are ----

using EntriesAndCount = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

EntriesAndCount room_for(std::int64_t entries, const at::Tensor& like) {
  const auto integers = like.options().dtype(at::kInt);
  return {at::empty({entries}, integers), at::empty({entries}, like.options().dtype(at::kFloat)),
          at::empty({1}, integers)};
}

EntriesAndCount top_k(at::Tensor& x, std::int64_t k, bool take) {
  const OnDeviceOf device(x);
  EntriesAndCount room = room_for(std::min(k, x.numel()), x);
  const auto& [indices, values, count] = room;
  const auto bytes = cuda::top_k_workspace_bytes(x.numel(), k);
  TORCH_CHECK(bytes.ok(), bytes.error().message);
  const at::Tensor workspace = workspace_of(*bytes, x);
  at::Tensor found;  // on the host, which waits for it here instead of at the caller's
  for (const auto candidates : {cuda::Candidates::guessed, cuda::Candidates::all}) {
    require(cuda::top_k(pointer<std::uint32_t>(indices), floats(values),
                        pointer<std::uint32_t>(count), floats(x), take, x.numel(), k, candidates,
                        workspace.data_ptr(), device.stream()));
    found = count.cpu();
    if (*pointer<std::uint32_t>(found) != cuda::kMissed) break;
  }
  return {indices, values, found};
}

void scatter_add(at::Tensor& x, const at::Tensor& indices, const at::Tensor& values,
                 double factor) {
  const OnDeviceOf device(x);
  require(cuda::add_entries(floats(x), pointer<std::uint32_t>(indices), floats(values),
                            static_cast<float>(factor), indices.numel(), device.stream()));
}

// ---- quantised ----

std::tuple<at::Tensor, at::Tensor> int8_pack(const at::Tensor& x, std::int64_t seed) {
  const OnDeviceOf device(x);
  const at::Tensor values = at::empty({x.numel()}, x.options().dtype(at::kByte));
  const at::Tensor scales = at::empty({cuda::int8_blocks(x.numel())}, x.options());
  require(cuda::int8_pack(pointer<std::int8_t>(values), floats(scales), floats(x),
                          static_cast<std::uint64_t>(seed), x.numel(), device.stream()));
  return {values, scales};
}

void int8_fold(at::Tensor& x, const at::Tensor& values, const at::Tensor& scales, double factor) {
  const OnDeviceOf device(x);
  require(cuda::int8_fold(floats(x), pointer<std::int8_t>(values), floats(scales),
                          static_cast<float>(factor), x.numel(), device.stream()));
}

}  // namespace

void register_cuda_operators() {
  static const torch::Library library = [] {
    torch::Library cuda(torch::Library::IMPL, "grapevine", c10::DispatchKey::CUDA, __FILE__,
                        __LINE__);
    cuda.impl("sgd_step", sgd_step);
    cuda.impl("push_sum_step", push_sum_step);
    cuda.impl("push_sum_fold", push_sum_fold);
    cuda.impl("meet", meet);
    cuda.impl("debias", debias);
    cuda.impl("clip", clip);
    cuda.impl("gem_proxy", gem_proxy);
    cuda.impl("gem_rescale", gem_rescale);
    cuda.impl("top_k", top_k);
    cuda.impl("scatter_add", scatter_add);
    cuda.impl("int8_pack", int8_pack);
    cuda.impl("int8_fold", int8_fold);
    return cuda;
  }();
}

}  // namespace grapevine
