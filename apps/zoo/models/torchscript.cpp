// A TorchScript module from a file.
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <filesystem>
#include <optional>
#include <set>

#include "apps/zoo/models/builtin.hpp"
#include "gpu/torch_error.hpp"

namespace grapevine {
namespace {

// Parameters without requires_grad count as buffers: they travel with the model but get no
// gradient.
// What a module of tokens expects, where its data and its results differ from DataSet's.
struct TokenForm {
  bool integers = false;      // int64 tokens
  bool classes_last = false;  // logits [B, T, classes]
};

class ScriptModel final : public Model {
 public:
  ScriptModel(const torch::jit::Module& module, TokenForm form) : module_(module), form_(form) {
    // Tied parameters have several names; each tensor counts once.
    std::set<const c10::TensorImpl*> seen;
    const auto add = [&](std::vector<NamedTensor>& to, const NamedTensor& named) {
      const bool first = seen.insert(named.tensor.unsafeGetTensorImpl()).second;
      (first ? to : other_names_).push_back(named);
    };
    for (const auto& item : module_.named_parameters())
      add(item.value.requires_grad() ? parameters_ : buffers_, {item.name, item.value});
    for (const auto& item : module_.named_buffers()) add(buffers_, {item.name, item.value});
  }

  std::vector<NamedTensor> parameters() override { return parameters_; }
  std::vector<NamedTensor> buffers() override { return buffers_; }
  std::vector<NamedTensor> other_names() override { return other_names_; }

  at::Tensor forward(const at::Tensor& input) override {
    // The optimising executor changes its kernels after the first runs, and bits with them.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const torch::jit::IValue output =
        module_.forward({form_.integers ? input.to(at::kLong) : input});
    TORCH_CHECK(output.isTensor(), "forward returns ", output.tagKind(), ", not one tensor");
    const at::Tensor& logits = output.toTensor();
    return form_.classes_last && logits.dim() == 3 ? logits.transpose(1, 2) : logits;
  }

  // Not Module::train(), which fails on a sub-module that never asks whether it trains.
  void train(bool on) override {
    for (torch::jit::Module each : module_.modules())
      if (each.hasattr("training")) each.setattr("training", on);
  }

  Expected<void> save(const std::string& path) override {
    try {
      train(false);  // a file for predictions: dropout and batch normalisation do not train in it
      module_.save(path);
      return {};
    } catch (const std::exception& e) {
      return Error{Errc::io, "cannot write the model to '" + path + "': " + one_line(e)};
    }
  }

 private:
  torch::jit::Module module_;
  const TokenForm form_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<NamedTensor> other_names_;
};

// The shape of a module's result for two samples of `steps` tokens 0; nothing where it fails.
std::optional<std::vector<std::int64_t>> result_shape(const torch::jit::Module& module,
                                                      std::int64_t steps, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  ScriptModel model(module.deepcopy(), {});
  try {
    model.train(false);
    return model.forward(at::zeros({2, steps}, type)).sizes().vec();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

TokenForm token_form(const torch::jit::Module& module, const DataInfo& info) {
  TokenForm form;
  if (info.vocabulary == 0 || info.sample_shape.size() != 1) return form;
  const std::int64_t steps = info.sample_shape[0];
  auto shape = result_shape(module, steps, at::kLong);
  form.integers = shape.has_value();
  if (!shape) shape = result_shape(module, steps, at::kFloat);
  if (!shape || shape->size() != 3 || info.target_shape.size() != 1) return form;
  form.classes_last = (*shape)[1] == steps && (*shape)[2] == info.classes;
  if (steps != info.classes || steps < 2) return form;
  // The sizes do not say which dimension is which: fewer tokens do.
  const auto shorter = result_shape(module, steps - 1, form.integers ? at::kLong : at::kFloat);
  form.classes_last = !shorter || (shorter->size() == 3 && (*shorter)[1] == steps - 1);
  return form;
}

// The argument that says whether the operation trains, where it is a constant: torch.jit.trace
// leaves one, where torch.jit.script asks the module.
std::optional<bool> fixed_mode(const torch::jit::Node& node) {
  const std::string name = node.kind().toQualString();
  std::size_t argument = 0;
  if (name == "aten::batch_norm") argument = 5;
  if (name == "aten::dropout" || name == "aten::feature_dropout") argument = 2;
  if (argument == 0 || node.inputs().size() <= argument) return std::nullopt;
  const auto value = torch::jit::toIValue(node.input(argument));
  return value && value->isBool() ? std::optional<bool>(value->toBool()) : std::nullopt;
}

std::optional<bool> fixed_mode(const torch::jit::Block& block) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (const auto mode = fixed_mode(*node)) return mode;
    for (const torch::jit::Block* inner : node->blocks())
      if (const auto mode = fixed_mode(*inner)) return mode;
  }
  return std::nullopt;
}

// What to tell the user of a module whose layers cannot change between training and evaluation.
std::string mode_notice(const std::string& path, const torch::jit::Module& module) {
  for (const torch::jit::Module& each : module.modules())
    for (const torch::jit::Method& method : each.get_methods())
      if (const auto mode = fixed_mode(*method.graph()->block()))
        return "model file '" + path + "': batch normalisation or dropout is fixed in " +
               (*mode ? "training" : "evaluation") +
               " mode, as torch.jit.trace leaves it: save the model with torch.jit.script(model)";
  return "";
}

}  // namespace

Expected<ModelFactory> load_torchscript(const std::string& path, const DataInfo& info,
                                        std::string* notice) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return bad_input("model file '" + path + "' does not exist: check the path");
  try {
    const torch::jit::Module module = torch::jit::load(path, at::kCPU);
    const std::string found = mode_notice(path, module);
    if (notice != nullptr && !found.empty()) *notice = found;
    const TokenForm form = token_form(module, info);
    return ModelFactory([module, form](std::uint64_t) -> Expected<std::unique_ptr<Model>> {
      return std::unique_ptr<Model>(std::make_unique<ScriptModel>(module.deepcopy(), form));
    });
  } catch (const std::exception& e) {
    return bad_input("model file '" + path + "' is not TorchScript (" + one_line(e) +
                     "): write it with torch.jit.script(model).save(file)");
  }
}

}  // namespace grapevine
