#include "apps/evaluate/evaluated_model.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "apps/compare/run_record.hpp"
#include "apps/zoo/models.hpp"
#include "apps/zoo/weights.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

std::string option_or_none(const RunRecord& run, const std::string& name) {
  const auto found = run.options.find(name);
  return found == run.options.end() ? "" : found->second;
}

bool is_builtin(const std::string& name) {
  const std::vector<std::string> names = model_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What job.toml in the folder says; without one nothing is known.
ModelSource source_in(const fs::path& file) {
  ModelSource source;
  source.file = file.string();
  const auto run = read_run_record(file.parent_path().empty() ? "." : file.parent_path().string());
  if (!run) return source;
  source.data = option_or_none(*run, "data");
  source.loss = option_or_none(*run, "loss");
  const std::string model = option_or_none(*run, "model");
  if (is_builtin(model)) source.model = model;
  return source;
}

}  // namespace

Expected<ModelSource> find_model(const std::string& given) {
  std::error_code none;
  const fs::path path(given);
  if (fs::is_directory(path, none)) {
    if (auto run = read_run_record(given); !run) return run.error();
    if (fs::is_regular_file(path / "model.pt", none)) return source_in(path / "model.pt");
    return bad_input(given + ": has no model.pt: the run has not ended, or has failed");
  }
  if (fs::is_regular_file(path, none)) return source_in(path);
  return bad_input(given +
                   ": there is no such file or folder: give a model file, or the folder of "
                   "a run");
}

Expected<std::unique_ptr<Model>> load_model(const ModelSource& source, const DataInfo& info) {
  if (is_torchscript(source.file)) {
    const auto factory = make_model_factory(source.file, info);
    if (!factory) return factory.error();
    return (*factory)(0);
  }
  auto weights = read_weights(source.file);
  if (!weights) return weights.error();
  if (source.model.empty())
    return bad_input(source.file +
                     ": holds tensors by name, not the model itself: name it with --model, or give "
                     "the folder of the run");
  const auto factory = make_model_factory(source.model, info);
  if (!factory) return factory.error();
  auto model = (*factory)(0);
  if (!model) return model.error();
  if (auto set = set_weights(**model, *weights, source.file); !set) return set.error();
  return model;
}

}  // namespace grapevine
