#include "gpu/model/precision.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "messages/text/names.hpp"

namespace grapevine {
namespace {

// LibTorch 2.4 has one set of calls for all devices, and deprecates that of each device.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
bool enabled(at::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
void enable(at::DeviceType device, bool on) { at::autocast::set_autocast_enabled(device, on); }
at::ScalarType type_of(at::DeviceType device) { return at::autocast::get_autocast_dtype(device); }
void set_type(at::DeviceType device, at::ScalarType type) {
  at::autocast::set_autocast_dtype(device, type);
}
#else
bool enabled(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
void enable(at::DeviceType device, bool on) {
  device == at::kCPU ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
}
at::ScalarType type_of(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::get_autocast_cpu_dtype()
                            : at::autocast::get_autocast_gpu_dtype();
}
void set_type(at::DeviceType device, at::ScalarType type) {
  device == at::kCPU ? at::autocast::set_autocast_cpu_dtype(type)
                     : at::autocast::set_autocast_gpu_dtype(type);
}
#endif

}  // namespace

Expected<Precision> parse_precision(const std::string& typed, at::Device device) {
  if (typed == "fp32") return Precision::fp32;
  if (typed == "bf16") return Precision::bf16;
  if (typed != "fp16" && typed != "tf32")
    return unknown_name("--precision", typed, {"fp32", "tf32", "bf16", "fp16"});
  if (device.is_cpu())
    return bad_input("--precision " + typed + ": needs a CUDA GPU: use bf16 or fp32 on the CPU");
  return typed == "fp16" ? Precision::fp16 : Precision::tf32;
}

void set_math_mode(Precision precision, bool benchmark) {
  at::globalContext().setAllowTF32CuBLAS(precision == Precision::tf32);
  at::globalContext().setAllowTF32CuDNN(precision == Precision::tf32);
  at::globalContext().setBenchmarkCuDNN(benchmark);
}

AutocastScope::AutocastScope(Precision precision, at::DeviceType device)
    : on_(precision == Precision::bf16 || precision == Precision::fp16), device_(device) {
  if (!on_) return;
  was_on_ = enabled(device_);
  old_type_ = type_of(device_);
  kept_copies_ = at::autocast::is_autocast_cache_enabled();
  set_type(device_, precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  enable(device_, true);
}

AutocastScope::~AutocastScope() {
  if (!on_) return;
  enable(device_, was_on_);
  set_type(device_, old_type_);
  at::autocast::set_autocast_cache_enabled(kept_copies_);
}

void LossScale::succeeded() {
  if (++clean_steps_ < kCleanSteps) return;
  clean_steps_ = 0;
  if (factor_ < kLargest) factor_ *= 2;
}

bool LossScale::lower() {
  clean_steps_ = 0;
  if (factor_ <= 1) return false;
  factor_ /= 2;
  return true;
}

}  // namespace grapevine
