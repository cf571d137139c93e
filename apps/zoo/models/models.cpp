#include "apps/zoo/models.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "apps/zoo/models/builtin.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

struct ModelEntry {
  std::string name;
  ModelMaker make;
};

// The list of models.
std::vector<ModelEntry>& all_models() {
  static std::vector<ModelEntry> models = {
      {"linear", make_linear},           {"lenet", make_lenet},       {"mlp", make_mlp},
      {"gem-cnn", make_gem_cnn},         {"lstm", make_lstm},         {"resnet20", make_resnet20},
      {"transformer", make_transformer}, {"resnet32", make_resnet32}, {"resnet18", make_resnet18},
      {"resnet50", make_resnet50},       {"vgg16", make_vgg16}};
  return models;
}

bool is_file_name(const std::string& name) {
  constexpr std::string_view kSuffix = ".pt";
  if (name.size() >= kSuffix.size() &&
      name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0)
    return true;
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored);
}

}  // namespace

Expected<void> register_model(const std::string& name, ModelMaker make) {
  const std::vector<std::string> known = model_names();
  if (std::find(known.begin(), known.end(), name) != known.end())
    return bad_input("model '" + name + "' exists already: choose another name");
  all_models().push_back({name, std::move(make)});
  return {};
}

Expected<ModelFactory> make_model_factory(const std::string& name_or_file, const DataInfo& info,
                                          std::string* notice) {
  for (const ModelEntry& entry : all_models())
    if (name_or_file == entry.name) return entry.make(info);
  if (is_file_name(name_or_file)) return load_torchscript(name_or_file, info, notice);
  return unknown_name("model", name_or_file, model_names());
}

Expected<void> check_model_name(const std::string& name_or_file) {
  const std::vector<std::string> known = model_names();
  const bool in_a_folder = name_or_file.find('/') != std::string::npos;
  if (std::find(known.begin(), known.end(), name_or_file) != known.end() || in_a_folder ||
      is_file_name(name_or_file))
    return {};
  return unknown_name("model", name_or_file, known);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelEntry& entry : all_models()) names.push_back(entry.name);
  return names;
}

}  // namespace grapevine
