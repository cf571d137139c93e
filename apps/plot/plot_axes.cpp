#include "apps/plot/plot_axes.hpp"

#include <algorithm>
#include <utility>

#include "messages/text/names.hpp"

namespace grapevine {
namespace {

constexpr double kPercent = 100;  // of a ratio

const std::vector<PlotY>& plot_columns() {
  static const std::vector<PlotY> columns = {
      {"loss", "training loss"},
      {"top1", "training top-1 accuracy (%)", kPercent},
      {"top5", "training top-5 accuracy (%)", kPercent},
      {"val_loss", "validation loss", 1, true},
      {"val_top1", "validation top-1 accuracy (%)", kPercent, true},
      {"val_top5", "validation top-5 accuracy (%)", kPercent, true},
      {"staleness", "staleness (steps)"},
      {"lr", "learning rate"},
      {"batch_time_s", "time of a step (s)"},
      {"exchange_time_s", "wait for ranks (s)"},
      {"data_time_s", "wait for data (s)"},
  };
  return columns;
}

const std::vector<std::pair<std::string, PlotX>>& plot_xs() {
  static const std::vector<std::pair<std::string, PlotX>> names = {{"time", PlotX::time},
                                                                   {"step", PlotX::step},
                                                                   {"epoch", PlotX::epoch},
                                                                   {"bytes", PlotX::bytes}};
  return names;
}

}  // namespace

Expected<PlotX> find_plot_x(const std::string& name) {
  std::vector<std::string> valid;
  for (const auto& [known, x] : plot_xs()) {
    if (known == name) return x;
    valid.push_back(known);
  }
  return unknown_name("--x", name, valid);
}

std::vector<std::string> plot_y_names() {
  std::vector<std::string> names;
  for (const PlotY& y : plot_columns()) names.push_back(y.column);
  return names;
}

Expected<PlotY> find_plot_y(const std::string& name) {
  if (name == "goodput")
    return bad_input(
        "--y goodput: metrics.csv does not record which samples count: read goodput in "
        "summary.json, or plot batch_time_s");
  const auto& all = plot_columns();
  const auto found =
      std::find_if(all.begin(), all.end(), [&name](const PlotY& y) { return y.column == name; });
  if (found == all.end()) return unknown_name("--y", name, plot_y_names());
  return *found;
}

XUnit unit_of(PlotX x, double largest) {
  constexpr double kMinute = 60, kHour = 3600;
  switch (x) {
    case PlotX::step:
      return {"step of a rank"};
    case PlotX::epoch:
      return {"epoch"};
    case PlotX::time:
      if (largest >= 3 * kHour) return {"time of training (h)", kHour};
      if (largest >= 10 * kMinute) return {"time of training (min)", kMinute};
      return {"time of training (s)"};
    case PlotX::bytes:
      break;
  }
  if (largest >= 1e12) return {"bytes sent by all ranks (TB)", 1e12};
  if (largest >= 1e9) return {"bytes sent by all ranks (GB)", 1e9};
  if (largest >= 1e6) return {"bytes sent by all ranks (MB)", 1e6};
  return {"bytes sent by all ranks (kB)", 1e3};
}

}  // namespace grapevine
