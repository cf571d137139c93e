#include "apps/evaluate/evaluated_model.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/models/model_average.hpp"
#include "apps/compare/run_record.hpp"
#include "apps/zoo/models.hpp"
#include "apps/zoo/weights.hpp"
#include "gpu/model/flat_params.hpp"

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
  source.seed = option_or_none(*run, "seed");
  source.skip_damaged = option_or_none(*run, "skip-damaged") == "true";
  const std::string model = option_or_none(*run, "model");
  if (is_builtin(model)) source.model = model;
  return source;
}

// Of the run that it is in.
ModelSource source_of_checkpoint(const fs::path& folder) {
  std::error_code none;
  const fs::path path = fs::canonical(folder, none);
  ModelSource source = source_in(path.parent_path().parent_path() / "model.pt");
  source.file = folder.string();
  const auto run = read_run_record(path.parent_path().parent_path().string());
  if (run) source.model = option_or_none(*run, "model");
  return source;
}

}  // namespace

bool is_checkpoint(const std::string& folder) {
  std::error_code none;
  return fs::is_regular_file(fs::path(folder) / "job.json", none);
}

Expected<ModelFactory> with_checkpoint(ModelFactory factory, const std::string& folder) {
  const auto checkpoint = read_checkpoint(folder);
  if (!checkpoint) return checkpoint.error();
  const auto workers = checkpoint->identity.find("workers");
  if (workers == checkpoint->identity.end() ||
      workers->second != std::to_string(checkpoint->ranks.size()))
    return bad_input(folder + ": is of parameter servers: give the model.pt of the run");
  ModelAverage mean;
  for (const StateDict& rank : checkpoint->ranks) {
    if (rank.entries().empty()) continue;  // it was lost
    const auto x = rank.tensor("model.x");
    const auto w = rank.number("model.w");
    if (!x || !w) return bad_input(folder + ": a rank has no model: the checkpoint is damaged");
    const auto buffers = rank.tensor("model.buffers");
    mean.add(FrozenTensor::freeze(*x / *w),
             buffers ? FrozenTensor::freeze(buffers->clone()) : FrozenTensor());
  }
  ModelFactory made = [factory = std::move(factory), z = mean.z(), buffers = mean.buffers(),
                       folder](std::uint64_t seed) -> Expected<std::unique_ptr<Model>> {
    auto model = factory(seed);
    if (!model) return model.error();
    if (auto loaded = load_flat(**model, z, buffers); !loaded)
      return bad_input(folder + ": " + loaded.error().message);
    return model;
  };
  if (auto first = made(0); !first) return first.error();
  return made;
}

Expected<ModelSource> find_model(const std::string& given) {
  std::error_code none;
  const fs::path path(given);
  if (is_checkpoint(given)) return source_of_checkpoint(path);
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
  if (is_checkpoint(source.file)) {
    auto plain = make_model_factory(source.model, info);
    if (!plain) return plain.error();
    const auto factory = with_checkpoint(*std::move(plain), source.file);
    if (!factory) return factory.error();
    return (*factory)(0);
  }
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
