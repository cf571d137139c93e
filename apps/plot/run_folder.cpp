#include "apps/plot/run_folder.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include <toml++/toml.h>

#include "apps/console/files/run_files.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// From the summary, or from the job where the run has not ended; it only serves the legend, so a
// damaged file counts as a missing one.
std::string algorithm_of_run(const fs::path& folder) {
  if (const auto summary = run_summary(folder)) {
    const auto algorithm = summary->find("algorithm");
    if (algorithm != summary->end() && algorithm->is_string()) return algorithm->get<std::string>();
  }
  try {
    return toml::parse(run_file_text(folder / "job.toml"))["algorithm"].value_or(std::string());
  } catch (const toml::parse_error&) {
    return "";
  }
}

// The last `count` names of a path, without "." and "..".
std::string end_of_path(const fs::path& path, std::size_t count) {
  std::error_code none;
  fs::path absolute = fs::absolute(path, none).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  std::vector<fs::path> names(absolute.begin(), absolute.end());
  fs::path end;
  for (std::size_t i = names.size() - std::min(count, names.size()); i < names.size(); ++i)
    end /= names[i];
  return end.string();
}

Expected<void> check_run(const std::string& given) {
  std::error_code none;
  const fs::path folder(given);
  if (!fs::exists(folder, none))
    return bad_input(given + ": no such run: give the folder of one, as train --out has it");
  if (!fs::is_directory(folder, none))
    return bad_input(given + ": is a file: give the folder of the run");
  if (!is_run(folder)) return no_run_there(folder);
  if (!fs::is_regular_file(folder / "metrics.csv", none))
    return bad_input(given + ": has no metrics.csv: give the folder of a run that has begun");
  return {};
}

}  // namespace

std::vector<std::string> legend_names(const std::vector<PlottedRun>& runs) {
  std::vector<std::size_t> names(runs.size(), 1);
  std::vector<std::string> ends(runs.size());
  for (bool unique = false; !unique;) {
    std::map<std::string, std::vector<std::size_t>> same;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::string longer = end_of_path(runs[i].folder, names[i]);
      ends[i] = longer;
      same[longer].push_back(i);
    }
    unique = true;
    for (const auto& [end, members] : same)
      for (const std::size_t i : members)
        if (members.size() > 1 && end_of_path(runs[i].folder, names[i] + 1) != end) {
          ++names[i];
          unique = false;
        }
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (const std::string& algorithm = runs[i].algorithm;
        !algorithm.empty() && algorithm != ends[i])
      ends[i].insert(0, algorithm + ": ");
  return ends;
}

Expected<std::vector<PlottedRun>> find_runs(const std::vector<std::string>& given) {
  std::vector<PlottedRun> runs;
  std::map<fs::path, std::string> seen;
  for (const std::string& name : given) {
    if (auto checked = check_run(name); !checked) return checked.error();
    std::error_code error;
    const auto [other, first] = seen.emplace(fs::canonical(name, error), name);
    if (!first && !error)
      return bad_input(name + ": is the same run as " + other->second + ": give it once");
    runs.push_back({name, name, algorithm_of_run(name), ""});
  }
  std::vector<std::string> names = legend_names(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].legend = names[i];
  return runs;
}

}  // namespace grapevine
