#include "apps/plot/plot_command.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "actors/record/files.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/plot/bytes_over_time.hpp"
#include "apps/plot/figure.hpp"
#include "apps/plot/figure_file.hpp"
#include "apps/plot/gnuplot.hpp"
#include "apps/plot/metrics_table.hpp"
#include "apps/plot/plot_axes.hpp"
#include "apps/plot/run_curves.hpp"
#include "apps/plot/run_folder.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostPoints = 2000;  // of a curve: a figure has no more pixels
constexpr std::size_t kMostPanels = 8;
constexpr std::int64_t kLargestWindow = 10000;
constexpr int kLargestSide = 10000;  // pixels

struct PlotOptions {
  std::vector<std::string> runs;
  std::string x = "time";
  std::vector<std::string> y = {"loss"};
  std::string out = "plot.svg";
  std::string title;
  std::int64_t smooth = 1;
  std::int32_t width = Figure().width;
  std::int32_t height = 0;  // 0: as high as reads well
  bool log_y = false;
  bool band = false;
  bool json = false;
};

// The same, understood.
struct PlotPlan {
  PlotX x = PlotX::time;
  std::vector<PlotY> ys;
  FigureFormat format = FigureFormat::svg;
  std::vector<PlottedRun> runs;
};

// Of one run: a curve for each panel.
struct DrawnRun {
  std::vector<CurvePoints> curves;
  std::vector<std::size_t> points;   // before they were thinned
  std::int64_t skipped = 0;          // lines of metrics.csv
  std::vector<std::string> missing;  // in the trace, where its bytes are shown
};

Expected<void> check_sizes(const PlotOptions& options) {
  if (auto checked =
          first_error({check_range("--smooth", options.smooth, 1, kLargestWindow),
                       check_range("--width", options.width, 100, kLargestSide, " pixels")});
      !checked)
    return checked;
  if (options.height != 0)
    if (auto checked = check_range("--height", options.height, 100, kLargestSide, " pixels");
        !checked)
      return checked;
  if (options.runs.size() > kMostRunsInFigure)
    return bad_input(fmt::format("{} runs: one figure shows at most {}", options.runs.size(),
                                 kMostRunsInFigure));
  return {};
}

// Everything that can be wrong before a run is read.
Expected<PlotPlan> plot_plan_of(const PlotOptions& options) {
  PlotPlan plan;
  const auto x = find_plot_x(options.x);
  if (!x) return x.error();
  plan.x = *x;
  std::set<std::string> seen;
  for (const std::string& name : options.y) {
    auto y = find_plot_y(name);
    if (!y) return y.error();
    if (!seen.insert(name).second)
      return bad_input("--y " + name + ": is given twice: give it once");
    plan.ys.push_back(*std::move(y));
  }
  if (plan.ys.size() > kMostPanels)
    return bad_input(fmt::format("--y: one figure shows at most {} columns", kMostPanels));
  const auto format = figure_format_of("--out", options.out);
  if (!format) return format.error();
  plan.format = *format;
  if (auto fits = check_sizes(options); !fits) return fits.error();
  auto runs = find_runs(options.runs);
  if (!runs) return runs.error();
  plan.runs = *std::move(runs);
  if (auto free = check_figure_path("--out", options.out); !free) return free.error();
  if (auto found = find_gnuplot(); !found) return found.error();
  return plan;
}

Expected<MetricsTable> read_table(const PlottedRun& run, const std::vector<PlotY>& ys) {
  const std::string path = (run.folder / "metrics.csv").string();
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad_input(path + ": cannot be read: check its rights");
  std::vector<std::string> columns;
  for (const PlotY& y : ys) columns.push_back(y.column);
  return MetricsTable::read(file, path, columns);
}

// Whether the panel can show it.
Expected<void> check_curve(const CurvePoints& curve, const PlottedRun& run, const PlotY& y,
                           bool log_y) {
  if (curve.empty())
    return bad_input(run.given + ": has no values of " + y.column +
                     " yet: choose another --y, or leave out this run");
  const bool positive = std::any_of(curve.begin(), curve.end(),
                                    [](const CurvePoint& point) { return point.mean > 0; });
  if (log_y && !positive)
    return bad_input("--log-y: " + y.column + " of " + run.given +
                     " is never greater than 0: leave out --log-y");
  return {};
}

Expected<DrawnRun> draw_run(const PlottedRun& run, const PlotPlan& plan,
                            const PlotOptions& options) {
  const auto table = read_table(run, plan.ys);
  if (!table) return table.error();
  BytesOverTime bytes;
  if (plan.x == PlotX::bytes) {
    auto read = bytes_over_time(run.folder);
    if (!read) return read.error();
    bytes = *std::move(read);
  }
  DrawnRun drawn;
  drawn.skipped = table->skipped();
  drawn.missing = std::move(bytes.missing);
  for (const PlotY& y : plan.ys) {
    const CurvePoints curve = curve_of(
        *table, {plan.x, y, options.smooth, plan.x == PlotX::bytes ? &bytes.points : nullptr});
    if (auto shown = check_curve(curve, run, y, options.log_y); !shown) return shown.error();
    drawn.points.push_back(curve.size());
    drawn.curves.push_back(thinned(curve, kMostPoints));
  }
  return drawn;
}

std::string note_of(const PlotPlan& plan, const PlotOptions& options) {
  const bool steps =
      std::any_of(plan.ys.begin(), plan.ys.end(), [](const PlotY& y) { return !y.validation; });
  if (!steps) return "Validation: averaged model, on the test data";
  std::string note = means_follow_time(plan.x)
                         ? "Mean of as many steps, in the order of time, as there are ranks"
                         : "Mean over ranks at each logged step";
  if (options.smooth > 1) note += fmt::format(", average over {} points", options.smooth);
  if (options.band) note += "; band: from the lowest to the highest";
  return note;
}

Figure figure_of(const PlotPlan& plan, const PlotOptions& options, std::vector<DrawnRun>& runs) {
  Figure figure;
  figure.format = plan.format;
  figure.width = options.width;
  figure.height = options.height;
  figure.title = options.title;
  figure.note = note_of(plan, options);
  figure.log_y = options.log_y;
  figure.band = options.band;
  for (const PlottedRun& run : plan.runs) figure.legend.push_back(run.legend);
  double largest = 0;
  for (const DrawnRun& run : runs)
    for (const CurvePoints& curve : run.curves) largest = std::max(largest, curve.back().x);
  const XUnit unit = unit_of(plan.x, largest);
  figure.x_label = unit.label;
  for (std::size_t panel = 0; panel < plan.ys.size(); ++panel) {
    figure.panels.push_back({plan.ys[panel].label, {}});
    for (DrawnRun& run : runs) {
      for (CurvePoint& point : run.curves[panel]) point.x /= unit.divisor;
      figure.panels.back().curves.push_back(std::move(run.curves[panel]));
    }
  }
  return figure;
}

void report_figure(const PlotPlan& plan, const PlotOptions& options,
                   const std::vector<DrawnRun>& runs, Console& console) {
  std::ostream& out = console.out;
  std::int64_t skipped = 0;
  for (const DrawnRun& run : runs) skipped += run.skipped;
  if (!options.json) {
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (const std::string& missing : runs[i].missing)
        console.err << fmt::format("note: {}: {}\n", plan.runs[i].given, missing);
    out << fmt::format("{}: {} by {} of {} run{}\n", options.out, fmt::join(options.y, ", "),
                       options.x, runs.size(), runs.size() == 1 ? "" : "s");
    if (skipped > 0) out << fmt::format("left out {} damaged lines of metrics.csv\n", skipped);
    return;
  }
  nlohmann::ordered_json object;
  object["out"] = options.out;
  object["x"] = options.x;
  object["y"] = options.y;
  object["runs"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    nlohmann::ordered_json points;
    for (std::size_t panel = 0; panel < plan.ys.size(); ++panel)
      points[plan.ys[panel].column] = runs[i].points[panel];
    object["runs"].push_back({{"run", plan.runs[i].given},
                              {"algorithm", plan.runs[i].algorithm},
                              {"legend", plan.runs[i].legend},
                              {"points", std::move(points)},
                              {"damaged_lines", runs[i].skipped},
                              {"missing", runs[i].missing}});
  }
  out << json_text(object) << '\n';
}

class PlotCommand final : public Command {
 public:
  bool computes() const override { return false; }

  void declare(CLI::App& app) override {
    app.add_option("runs", options_.runs, "folders of runs: train --out")->required();
    add_option(app, "x", options_.x, "time, step, epoch or bytes");
    add_list(app, "y", options_.y, "columns of metrics.csv, a panel for each");
    add_option(app, "out", options_.out, "the figure: FILE.svg or FILE.png");
    add_option(app, "smooth", options_.smooth,
               "average over so many points around each, but not of validations");
    add_switch(app, "band", options_.band,
               "show the lowest and highest values behind each mean, too");
    add_switch(app, "log-y", options_.log_y, "logarithmic y axes");
    add_option(app, "title", options_.title, "title of the figure");
    add_option(app, "width", options_.width, "pixels");
    add_option(app, "height", options_.height, "pixels (0: as many as panels and legend need)");
    add_switch(app, "json", options_.json, "print one JSON object");
    add_option(app, "config", config_, "TOML file with options");
    app_ = &app;
    app.footer(fmt::format("Columns: {}\n", fmt::join(plot_y_names(), " ")) +
               "A point is the mean over the ranks at a logged step; by time or bytes, of as many "
               "steps in a row as there are ranks.");
  }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    const auto plan = plot_plan_of(options_);
    if (!plan) return plan.error();
    std::vector<DrawnRun> runs;
    for (const PlottedRun& run : plan->runs) {
      auto drawn = draw_run(run, *plan, options_);
      if (!drawn) return drawn.error();
      runs.push_back(*std::move(drawn));
    }
    const auto script = gnuplot_script(figure_of(*plan, options_, runs));
    if (!script) return script.error();
    const auto drawn = run_gnuplot(*script);
    if (!drawn) return drawn.error();
    const auto figure = signed_figure(plan->format, *drawn);
    if (!figure) return figure.error();
    if (auto written = write_file_atomically(options_.out, *figure); !written) return written;
    report_figure(*plan, options_, runs, console);
    return {};
  }

 private:
  PlotOptions options_;
  std::string config_;
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_plot_command() { return std::make_unique<PlotCommand>(); }

}  // namespace grapevine
