#include "apps/trace/report/run_facts.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <toml++/toml.h>

namespace grapevine {
namespace {

using nlohmann::ordered_json;

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ordered_json json_of_toml(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  return nullptr;
}

ordered_json facts_of_job(const std::string& text) {
  ordered_json values = ordered_json::object();
  try {
    const toml::table job = toml::parse(text);
    for (const char* key : {"algorithm", "model", "data", "workers", "seed"})
      if (const toml::node* node = job.get(key)) values[key] = json_of_toml(*node);
    ordered_json wiring = ordered_json::object();
    if (const toml::table* table = job["wiring"].as_table())
      for (const auto& [key, node] : *table)
        if (const auto word = node.value<std::string>()) wiring[std::string(key.str())] = *word;
    if (!wiring.empty()) values["wiring"] = wiring;
  } catch (const toml::parse_error&) {
    return ordered_json::object();
  }
  return values;
}

bool has_run_files(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* name : {"summary.json", "job.toml", "metrics.csv"})
    if (std::filesystem::exists(folder / name, ignored)) return true;
  return false;
}

}  // namespace

std::string folder_of_run(const std::string& given) {
  std::error_code failure;
  std::filesystem::path folder = std::filesystem::absolute(given, failure).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (failure || has_run_files(folder) || !has_run_files(folder.parent_path())) return given;
  return folder.parent_path().string();
}

RunFacts read_run_facts(const std::string& run) {
  const std::filesystem::path folder(run);
  RunFacts facts;
  const ordered_json summary = ordered_json::parse(text_of_file(folder / "summary.json"), nullptr,
                                                   /*allow_exceptions=*/false);
  if (summary.is_object()) {
    facts.values = summary;
    facts.ended = true;
    return facts;
  }
  facts.missing.emplace_back(
      "there is no summary.json: the run was killed, has failed, or has not ended yet; its final "
      "figures are not known");
  facts.values = facts_of_job(text_of_file(folder / "job.toml"));
  if (facts.values.empty())
    facts.missing.emplace_back("job.toml cannot be read: algorithm, model and seed are not known");
  return facts;
}

}  // namespace grapevine
