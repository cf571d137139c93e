#include "apps/compare/compare_command.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/compare/run_record.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "apps/console/verb_options.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

// Of the summary; NaN where it has none.
double summary_figure(const RunRecord& run, const std::string& key) {
  const auto found = run.summary.find(key);
  return found != run.summary.end() && found->is_number()
             ? found->get<double>()
             : std::numeric_limits<double>::quiet_NaN();
}

double nested_figure(const RunRecord& run, const std::string& group, const std::string& key) {
  const auto found = run.summary.find(group);
  if (found == run.summary.end() || !found->is_object() || !found->contains(key) ||
      !(*found)[key].is_number())
    return std::numeric_limits<double>::quiet_NaN();
  return (*found)[key].get<double>();
}

const std::vector<std::pair<std::string, std::string>>& sort_keys() {
  static const std::vector<std::pair<std::string, std::string>> keys = {
      {"accuracy", "test_accuracy"}, {"loss", "test_loss"}, {"time", "wall_seconds"}};
  return keys;
}

// A column of figures is left out where no run has it.
struct FigureColumn {
  std::string name;
  std::function<std::string(const RunRecord&)> cell;
};

std::string duration_cell(const RunRecord& run) {
  const double seconds = summary_figure(run, "wall_seconds");
  return std::isfinite(seconds) ? format_duration(from_seconds(seconds)) : "-";
}

std::string bytes_cell(const RunRecord& run) {
  const double bytes = summary_figure(run, "bytes_sent");
  return std::isfinite(bytes) ? format_bytes(static_cast<std::uint64_t>(bytes)) : "-";
}

// How the run stands: an ended one has a summary.
std::string state_of(const RunRecord& run) {
  if (run.running) return "running";
  if (run.summary.empty()) return "not ended";
  if (run.summary.contains("error")) return "failed";
  const auto interrupted = run.summary.find("interrupted");
  return interrupted != run.summary.end() && interrupted->is_boolean() && interrupted->get<bool>()
             ? "stopped"
             : "done";
}

std::vector<FigureColumn> figure_columns() {
  const auto figure = [](const std::string& key, int decimals) {
    return [key, decimals](const RunRecord& run) {
      return format_number(summary_figure(run, key), decimals);
    };
  };
  return {
      {"state", state_of},
      {"time", duration_cell},
      {"samples/s",
       [](const RunRecord& run) { return format_rate(summary_figure(run, "samples_per_second")); }},
      {"loss", figure("final_loss", 4)},
      {"test loss", figure("test_loss", 4)},
      {"test accuracy", figure("test_accuracy", 4)},
      {"sent", bytes_cell},
      {"staleness",
       [](const RunRecord& run) {
         return format_number(nested_figure(run, "staleness", "mean"), 2);
       }},
      {"goodput", figure("goodput", 3)}};
}

// The options that not all runs have with the same value, in the order of their names.
std::vector<std::string> different_options(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs)
    for (const auto& [name, value] : run.options) names.insert(name);
  std::vector<std::string> different;
  for (const std::string& name : names) {
    std::set<std::string> values;
    for (const RunRecord& run : runs) {
      const auto found = run.options.find(name);
      values.insert(found == run.options.end() ? "" : "=" + found->second);
    }
    if (values.size() > 1) different.push_back(name);
  }
  return different;
}

std::string option_of(const RunRecord& run, const std::string& name) {
  const auto found = run.options.find(name);
  return found == run.options.end() ? "-" : found->second;
}

std::string figures_table(const std::vector<RunRecord>& runs) {
  std::vector<FigureColumn> columns;
  for (FigureColumn& column : figure_columns()) {
    bool any = false;
    for (const RunRecord& run : runs) any = any || column.cell(run) != "-";
    if (any) columns.push_back(std::move(column));
  }
  std::vector<std::string> header = {"run"};
  for (const FigureColumn& column : columns) header.push_back(column.name);
  Table table(header);
  for (const RunRecord& run : runs) {
    std::vector<std::string> row = {run.folder};
    for (const FigureColumn& column : columns) row.push_back(column.cell(run));
    table.add_row(row);
  }
  return table.to_string();
}

// A row for each option: many options and few runs are the usual case.
std::string options_table(const std::vector<RunRecord>& runs,
                          const std::vector<std::string>& different) {
  if (different.empty()) return "all options are the same\n";
  std::vector<std::string> header = {"option"};
  for (const RunRecord& run : runs) header.push_back(run.folder);
  Table table(header);
  for (const std::string& name : different) {
    std::vector<std::string> row = {name};
    for (const RunRecord& run : runs) row.push_back(option_of(run, name));
    table.add_row(row);
  }
  return table.to_string();
}

ordered_json comparison_json(const std::vector<RunRecord>& runs,
                             const std::vector<std::string>& different) {
  ordered_json object;
  object["different"] = different;
  object["runs"] = ordered_json::array();
  for (const RunRecord& run : runs) {
    ordered_json options = ordered_json::object();
    for (const std::string& name : different) {
      const auto found = run.options.find(name);
      options[name] =
          found == run.options.end() ? ordered_json(nullptr) : ordered_json(found->second);
    }
    object["runs"].push_back({{"run", run.folder},
                              {"state", state_of(run)},
                              {"options", std::move(options)},
                              {"summary", run.summary}});
  }
  return object;
}

class CompareCommand final : public Command {
 public:
  bool computes() const override { return false; }

  void declare(CLI::App& app) override {
    app.add_option("runs", folders_, "folders of runs: train --out")->required();
    add_option(app, "sort", sort_,
               "order of the runs: given | accuracy | loss | time, the best first");
    add_switch(app, "json", json_, "print one JSON object");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    std::vector<std::string> orders = {"given"};
    for (const auto& [name, key] : sort_keys()) orders.push_back(name);
    if (std::find(orders.begin(), orders.end(), sort_) == orders.end())
      return unknown_name("--sort", sort_, orders);
    std::vector<RunRecord> runs;
    for (const std::string& folder : folders_) {
      auto record = read_run_record(folder);
      if (!record) return record.error();
      runs.push_back(*std::move(record));
    }
    sort(runs);
    const std::vector<std::string> different = different_options(runs);
    if (json_)
      console.out << json_text(comparison_json(runs, different)) << '\n';
    else
      console.out << figures_table(runs) << '\n' << options_table(runs, different);
    return {};
  }

 private:
  // Runs without the figure come last.
  void sort(std::vector<RunRecord>& runs) const {
    for (const auto& [name, key] : sort_keys()) {
      if (sort_ != name) continue;
      const double sign = name == "accuracy" ? -1 : 1;
      const auto order = [&key = key, sign](const RunRecord& run) {
        const double figure = sign * summary_figure(run, key);
        return std::isfinite(figure) ? figure : std::numeric_limits<double>::infinity();
      };
      std::stable_sort(runs.begin(), runs.end(), [&order](const RunRecord& a, const RunRecord& b) {
        return order(a) < order(b);
      });
    }
  }

  std::vector<std::string> folders_;
  std::string sort_ = "given";
  std::string config_;
  bool json_ = false;
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace grapevine
