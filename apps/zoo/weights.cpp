#include "apps/zoo/weights.hpp"

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "apps/zoo/data/file_bytes.hpp"
#include "apps/zoo/zip_check.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kLargestWeights = std::int64_t{1} << 36;  // bytes
constexpr char kParallelPrefix[] = "module.";
constexpr char kBatchCount[] = "num_batches_tracked";

// Of LibTorch's error: Python's pickle writes SETITEM ('s') for a single entry, which it does not
// know.
constexpr char kOneEntry[] = "for unpickling at 0x73: 115";

Error no_weights(const std::string& path, const std::string& why) {
  return bad_input(
      path + ": " + why +
      ": give a model.pt of a run, a dict that torch.save(dict(model.state_dict()), FILE) "
      "wrote, or a TorchScript file");
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Entries that are no tensors, such as the epoch of a checkpoint, are left out.
Expected<Weights> weights_of_dict(const at::IValue& value, const std::string& path) {
  if (!value.isGenericDict()) return no_weights(path, "holds no dict of tensors");
  Weights weights;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString()) continue;
    const std::string name = entry.key().toStringRef();
    if (entry.value().isTensor()) weights[name] = entry.value().toTensor();
    const bool nested = name == "state_dict" || name == "model_state_dict" || name == "model";
    if (nested && entry.value().isGenericDict()) return weights_of_dict(entry.value(), path);
  }
  if (weights.empty()) return no_weights(path, "holds no dict of tensors");
  return weights;
}

Weights weights_of_module(const torch::jit::Module& module) {
  Weights weights;
  for (const auto& item : module.named_parameters()) weights[item.name] = item.value;
  for (const auto& item : module.named_buffers()) weights[item.name] = item.value;
  return weights;
}

Weights without_parallel_prefix(Weights weights) {
  const std::string prefix = kParallelPrefix;
  for (const auto& [name, tensor] : weights)
    if (name.rfind(prefix, 0) != 0) return weights;
  Weights plain;
  for (auto& [name, tensor] : weights) plain[name.substr(prefix.size())] = std::move(tensor);
  return plain;
}

std::string sizes_text(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

// A tensor that several names share must have the same values under all of them in the file.
Expected<void> check_tied(const std::vector<NamedTensor>& tensors,
                          const std::vector<NamedTensor>& others, const Weights& weights,
                          const std::string& path) {
  for (const NamedTensor& other : others) {
    const auto first = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& named) {
      return named.tensor.is_same(other.tensor);
    });
    const auto again = weights.find(other.name);
    if (first == tensors.end() || again == weights.end()) continue;
    const auto found = weights.find(first->name);
    if (found != weights.end() && !found->second.equal(again->second))
      return bad_input(path + ": '" + first->name + "' and '" + other.name +
                       "' are one tensor in the model, and differ here: give the weights of the "
                       "same model");
  }
  return {};
}

}  // namespace

bool is_torchscript(const std::string& path) {
  try {
    torch::jit::load(path, at::kCPU);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Expected<Weights> read_weights(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return bad_input(path + ": there is no such file: check the path");
  const auto bytes = read_file(path, kLargestWeights);
  if (!bytes) return bytes.error();
  if (auto whole = check_zip(path, *bytes); !whole) return whole.error();
  try {
    auto weights = weights_of_dict(torch::jit::pickle_load({bytes->begin(), bytes->end()}), path);
    if (!weights) return weights.error();
    return without_parallel_prefix(*std::move(weights));
  } catch (const std::exception& problem) {  // it may be the other kind of file
    if (std::string(problem.what()).find(kOneEntry) != std::string::npos)
      return no_weights(path,
                        "holds a dict of one entry alone, which LibTorch cannot read: save "
                        "the dict of tensors itself, or a second entry beside it");
  }
  try {
    return without_parallel_prefix(weights_of_module(torch::jit::load(path, at::kCPU)));
  } catch (const std::exception&) {
    return no_weights(path, "is neither a dict of tensors nor a TorchScript file");
  }
}

Expected<void> set_weights(Model& model, const Weights& weights, const std::string& path) {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> tensors = model.parameters();
  for (NamedTensor& buffer : model.buffers()) tensors.push_back(std::move(buffer));
  const std::vector<NamedTensor> others = model.other_names();
  if (auto tied = check_tied(tensors, others, weights, path); !tied) return tied;
  std::size_t used = 0;
  for (NamedTensor& named : tensors) {
    const auto found = weights.find(named.name);
    if (found == weights.end() && ends_with(named.name, kBatchCount)) continue;
    if (found == weights.end())
      return bad_input(path + ": has no tensor '" + named.name +
                       "' of the model: give the weights of the same model");
    if (found->second.sizes() != named.tensor.sizes())
      return bad_input(path + ": '" + named.name + "' has the shape " + sizes_text(found->second) +
                       ", the model needs " + sizes_text(named.tensor) +
                       ": give the weights of the same model for the same data");
    named.tensor.detach().copy_(found->second);
    ++used;
  }
  if (used == weights.size()) return {};
  for (const auto& [name, tensor] : weights) {
    const auto is_named = [&name = name](const NamedTensor& named) { return named.name == name; };
    const bool known = std::any_of(tensors.begin(), tensors.end(), is_named) ||
                       std::any_of(others.begin(), others.end(), is_named);
    if (!known && !ends_with(name, kBatchCount))
      return bad_input(path + ": the model has no tensor '" + name +
                       "': give the weights of the same model");
  }
  return {};
}

Expected<ModelFactory> with_weights(ModelFactory factory, Weights weights,
                                    const std::string& path) {
  ModelFactory made = [factory = std::move(factory), weights = std::move(weights),
                       path](std::uint64_t seed) -> Expected<std::unique_ptr<Model>> {
    auto model = factory(seed);
    if (!model) return model.error();
    if (auto set = set_weights(**model, weights, path); !set) return set.error();
    return model;
  };
  if (auto first = made(0); !first) return first.error();
  return made;
}

}  // namespace grapevine
