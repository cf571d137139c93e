// The random numbers of a forward pass, e.g. of dropout's masks.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace grapevine {

// LibTorch's own dropout draws from one generator per device, shared by all threads: its masks
// depend on what other workers do. This one belongs to the calling thread; TorchCompute seeds it
// before each forward pass by (seed, rank, step), so that equal steps draw equal numbers. The
// reference is valid until the same thread asks for another device.
at::Generator& step_generator(at::Device device);

void seed_step_generator(at::Device device, std::uint64_t seed);

// Whether random numbers were drawn since its construction: of the calling thread's step generator,
// or of LibTorch's own ones for the device and for the host, from which other threads may have
// drawn as well.
class DrawWatch {
 public:
  explicit DrawWatch(at::Device device);
  bool drew() const;

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace grapevine
