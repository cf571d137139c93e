// TorchScript files for tests of the command line.
#pragma once
#include <filesystem>
#include <string>

#include <torch/script.h>

namespace grapevine {

// A module with the parameter `w`, the attribute `training` and the method `forward`, as a file.
// Returns its path.
inline std::string save_script_model(const std::filesystem::path& path, const at::Tensor& w,
                                     const std::string& forward) {
  torch::jit::Module module("script");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("w", w.detach().requires_grad_(), false);
  module.define(forward);
  module.save(path.string());
  return path.string();
}

}  // namespace grapevine
