#include "apps/compare/run_record.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "actors/record/files.hpp"
#include "apps/console/files/run_files.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/toml_problem.hpp"

namespace grapevine {
namespace {

std::string value_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<double>()) return number_text(*number);
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return out.str();
}

// Tables as "NAME.KEY", arrays of tables as "NAME.NUMBER.KEY" from 1 on, as --set names levels.
void flatten(const toml::node& node, const std::string& name,
             std::map<std::string, std::string>& options) {
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table)
      flatten(value, (name.empty() ? "" : name + ".") + std::string(key.str()), options);
    return;
  }
  const toml::array* array = node.as_array();
  if (array == nullptr || !array->is_array_of_tables()) {
    options[name] = value_text(node);
    return;
  }
  int number = 0;
  for (const toml::node& entry : *array)
    flatten(entry, name + "." + std::to_string(++number), options);
}

// At a stop ranks have reported more steps than the last checkpoint has. Summaries of earlier
// programs do not say how many.
std::optional<long long> steps_known_to(const nlohmann::ordered_json& summary) {
  for (const char* key : {"reported_steps", "steps"})
    if (const auto steps = summary.find(key); steps != summary.end() && steps->is_number_integer())
      return steps->get<long long>();
  return std::nullopt;
}

// Whether the newest rows of `metrics` are of later steps than the summary knows of.
bool goes_beyond(const nlohmann::ordered_json& summary, const std::filesystem::path& metrics) {
  constexpr std::uintmax_t kNewest = std::uintmax_t{1} << 16;  // bytes
  const std::optional<long long> known = steps_known_to(summary);
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(metrics, none);
  if (none || !known) return false;
  std::ifstream file(metrics, std::ios::binary);
  std::string row;
  if (size > kNewest && file.seekg(static_cast<std::streamoff>(size - kNewest)))
    std::getline(file, row);  // the rest of one
  // The last row of a process that was killed may be cut off.
  while (std::getline(file, row) && !file.eof()) {
    long long step = -1;
    if (std::sscanf(row.c_str(), "%*d,%*f,%lld,", &step) == 1 && step >= *known) return true;
  }
  return false;
}

}  // namespace

Expected<RunRecord> read_run_record(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_directory(folder, none))
    return bad_input(folder + ": is no folder of a run: give the one of train --out");
  RunRecord record;
  record.folder = folder;
  const fs::path file = fs::path(folder) / "job.toml";
  if (!fs::exists(file, none)) return no_run_there(folder);
  const std::string job = run_file_text(file);
  if (job.empty())
    return bad_input(file.string() +
                     ": is empty, too large or no file: write it again, or give another run");
  try {
    flatten(toml::parse(job), "", record.options);
  } catch (const toml::parse_error& problem) {
    return bad_input(without_control_characters(
        toml_problem(file.string(), job, problem.source().begin.line, problem.description())));
  }
  record.summary = run_summary(folder).value_or(nlohmann::ordered_json::object());
  // Of a job in several processes, job.toml has the number in each.
  const auto workers = record.summary.find("workers");
  const auto option = record.options.find("workers");
  if (option != record.options.end() && workers != record.summary.end() &&
      workers->is_number_integer())
    option->second = std::to_string(workers->get<std::int64_t>());
  record.running = is_locked(folder);
  if (record.running || goes_beyond(record.summary, fs::path(folder) / "metrics.csv"))
    record.summary = nlohmann::ordered_json::object();
  return record;
}

}  // namespace grapevine
