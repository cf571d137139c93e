#include "apps/trace/report/run_facts.hpp"

#include <filesystem>
#include <utility>

#include <toml++/toml.h>

#include "apps/console/files/run_files.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

std::string folder_of_run(const std::string& given) {
  std::error_code failure;
  std::filesystem::path folder = std::filesystem::absolute(given, failure).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (failure || is_run(folder) || !is_run(folder.parent_path())) return given;
  return folder.parent_path().string();
}

RunFacts read_run_facts(const std::string& run) {
  const std::filesystem::path folder(run);
  RunFacts facts;
  if (auto summary = run_summary(folder)) {
    facts.values = *std::move(summary);
    facts.ended = true;
    return facts;
  }
  facts.missing.emplace_back(
      "there is no summary.json: the run was killed, has failed, or has not ended yet; its final "
      "figures are not known");
  facts.values = facts_of_job(run_file_text(folder / "job.toml"));
  if (facts.values.empty())
    facts.missing.emplace_back("job.toml cannot be read: algorithm, model and seed are not known");
  return facts;
}

}  // namespace grapevine
