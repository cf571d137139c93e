#include "apps/plot/figure.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/console/text/display_width.hpp"
#include "apps/plot/axis_range.hpp"

namespace grapevine {
namespace {

// Okabe and Ito, "Color Universal Design" (2008), without yellow, which is pale on white.
constexpr const char* kCurveColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                        "#E69F00", "#56B4E9", "#000000"};
constexpr const char* kCurveDashes[] = {"1", "(8,4)", "(2,3)", "(10,3,2,3)"};
static_assert(std::size(kCurveColors) * std::size(kCurveDashes) == kMostRunsInFigure);
// So many points or fewer are drawn as points, too: a single one would have no line.
constexpr std::size_t kVisiblePoints = 40;
constexpr int kPointKinds[] = {7, 5, 9, 13, 11, 4, 6};

// Pixels.
constexpr int kLeastLeftMargin = 96;  // wider where the numbers of a y axis are
constexpr int kYLabelAt = 18;         // its middle: fixed, as numbers differ in width
constexpr int kRightMargin = 24;
constexpr int kEdge = 14;
constexpr int kTitleHeight = 26;
constexpr int kLegendRow = 20;
constexpr int kNoteRow = 16;
constexpr int kPanelGap = 18;
constexpr int kUsualPanel = 290;         // of a single one
constexpr int kUsualStackedPanel = 200;  // of several
constexpr int kLegendSample = 62;        // the piece of line, and space
constexpr double kCharacter = 8;         // its usual width, rather more

// The two terminals place texts differently; sizes of fonts are pixels for one, and points for the
// other, of which cairo makes 4/3 as many pixels.
struct TerminalSizes {
  const char* terminal;
  const char* font;
  const char* title_font;
  const char* note_font;
  double legend_spacing;  // for rows of kLegendRow
  int x_axis_height;      // pixels: numbers and label
};

const TerminalSizes& sizes_of(FigureFormat format) {
  static const TerminalSizes svg{"svg", "sans-serif,13", ",15", ",11", 1.02, 62};
  static const TerminalSizes png{"pngcairo", "sans-serif,9.75", ",11.25", ",8.25", 1.28, 50};
  return format == FigureFormat::svg ? svg : png;
}

// As a text of gnuplot: there, and in the SVG, each character stands for itself.
std::string gnuplot_text(const std::string& text) {
  using nlohmann::json;
  // Only UTF-8 passes.
  const std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace))
          .get<std::string>();
  std::string quoted = "'";
  for (const char c : valid) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    quoted += control ? '?' : c;
    if (c == '\'') quoted += '\'';
  }
  return quoted + "'";
}

// The note, broken between words to the width of the panels.
std::vector<std::string> note_lines(const Figure& figure, int left_margin) {
  constexpr double kSmallCharacter = 6;
  const int room = static_cast<int>((figure.width - left_margin - kRightMargin) / kSmallCharacter);
  if (figure.note.empty()) return {};
  return wrapped_lines(figure.note, room, "");
}

struct LegendLayout {
  int columns = 1;
  int rows = 1;
};

struct FigureLayout {
  LegendLayout legend;
  int left = 0;    // margin
  int top = 0;     // of the first panel, from the upper edge
  int panel = 0;   // height of one
  int height = 0;  // of the figure
};

int legend_entry_width(const Figure& figure) {
  int widest = 0;
  for (const std::string& entry : figure.legend) widest = std::max(widest, display_width(entry));
  return kLegendSample + static_cast<int>(std::ceil(widest * kCharacter));
}

// From its label over its numbers to the axis.
int left_margin(const Figure& figure) {
  constexpr int kHalfLabel = 12, kTicAndSpace = 18;
  std::size_t longest = 0;
  for (const FigurePanel& panel : figure.panels)
    longest = std::max(longest, longest_y_number(figure, panel));
  const double numbers = std::ceil(static_cast<double>(longest) * kCharacter);
  return std::max(kLeastLeftMargin,
                  kYLabelAt + kHalfLabel + static_cast<int>(numbers) + kTicAndSpace);
}

// At least as high as its label, which is turned, is long.
int least_panel(const Figure& figure) {
  constexpr double kTurnedCharacter = 6.8;
  int longest = 0;
  for (const FigurePanel& panel : figure.panels)
    longest = std::max(longest, display_width(panel.y_label));
  return static_cast<int>(std::ceil(longest * kTurnedCharacter));
}

Expected<FigureLayout> layout_of(const Figure& figure) {
  const int runs = static_cast<int>(figure.legend.size());
  const int panels = static_cast<int>(figure.panels.size());
  const int entry = legend_entry_width(figure);
  const int left = left_margin(figure);
  const int room = figure.width - left - kRightMargin;
  if (entry > room)
    return bad_input(
        fmt::format("--width {}: the longest name in the legend needs at least {} pixels",
                    figure.width, entry + left + kRightMargin));
  FigureLayout layout;
  layout.left = left;
  layout.legend.columns = std::min(runs, room / entry);
  layout.legend.rows = (runs + layout.legend.columns - 1) / layout.legend.columns;
  layout.top =
      kEdge + (figure.title.empty() ? 0 : kTitleHeight) + layout.legend.rows * kLegendRow + kEdge;
  const int bottom = sizes_of(figure.format).x_axis_height + kEdge +
                     kNoteRow * static_cast<int>(note_lines(figure, left).size());
  const int around = layout.top + bottom + (panels - 1) * kPanelGap;
  const int usual = panels == 1 ? kUsualPanel : kUsualStackedPanel;
  layout.height = figure.height == 0 ? around + panels * usual : figure.height;
  layout.panel = (layout.height - around) / panels;
  if (layout.panel < least_panel(figure))
    return bad_input(fmt::format("--height {}: the legend and the panels need at least {} pixels",
                                 figure.height, around + panels * least_panel(figure)));
  return layout;
}

std::string block_name(std::size_t panel, std::size_t run) {
  return fmt::format("$curve_{}_{}", panel, run);
}

// x, mean, low and high; on a logarithmic axis a value that it does not have is a gap.
std::string data_blocks(const Figure& figure) {
  std::string script;
  const auto drawn = [&figure](double value) {
    return figure.log_y && value <= 0 ? "NaN" : fmt::format("{:.9g}", value);
  };
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const double floor = figure.log_y ? y_range(figure, figure.panels[p]).low
                                      : -std::numeric_limits<double>::infinity();
    for (std::size_t run = 0; run < figure.panels[p].curves.size(); ++run) {
      script += block_name(p, run) + " << END_OF_CURVE\n";
      for (const CurvePoint& point : figure.panels[p].curves[run])
        script += fmt::format("{:.9g} {} {:.9g} {:.9g}\n", point.x, drawn(point.mean),
                              std::max(floor, point.low), std::max(floor, point.high));
      script += "END_OF_CURVE\n";
    }
  }
  return script;
}

std::string terminal_of(const Figure& figure) {
  const TerminalSizes& sizes = sizes_of(figure.format);
  return fmt::format(
      "set terminal {} size {},{} noenhanced font '{}' background rgb 'white' linewidth 1\n",
      sizes.terminal, figure.width, figure.height, sizes.font);
}

std::string style_of_panels(const Figure& figure) {
  const AxisRange x = x_range(figure);
  std::string script =
      "set border 3 lc rgb '#555555'\n"
      "set tics out nomirror textcolor rgb '#222222'\n"
      "set grid x y lt 1 lw 0.6 lc rgb '#E2E2E2'\n"
      "set xtics autofreq\nset format y '%g'\n"
      "set style fill transparent solid 0.16 noborder\n"
      "set datafile missing 'NaN'\n";
  script += fmt::format("set xrange [{:.9g}:{:.9g}]\n", x.low, x.high);
  if (figure.log_y) script += "set logscale y\n";
  return script;
}

std::string title_and_note(const Figure& figure, const FigureLayout& layout) {
  const TerminalSizes& sizes = sizes_of(figure.format);
  std::string script;
  const double left = static_cast<double>(layout.left) / figure.width;
  if (!figure.title.empty())
    script += fmt::format("set label 1 {} at screen {:.6f},{:.6f} left front font '{}'\n",
                          gnuplot_text(figure.title), left,
                          1 - (kEdge + kTitleHeight / 3.0) / figure.height, sizes.title_font);
  const std::vector<std::string> lines = note_lines(figure, layout.left);
  for (std::size_t i = 0; i < lines.size(); ++i)
    script += fmt::format(
        "set label {} {} at screen {:.6f},{:.6f} left front font '{}' textcolor rgb '#555555'\n",
        i + 4, gnuplot_text(lines[i]), left,
        (kEdge + kNoteRow * static_cast<double>(lines.size() - 1 - i)) / figure.height,
        sizes.note_font);
  return script;
}

std::string legend_of_figure(const Figure& figure, const FigureLayout& layout) {
  const int above = kEdge / 2 + (figure.title.empty() ? 0 : kTitleHeight);
  return fmt::format(
      "set key at screen {:.6f},{:.6f} left top vertical maxrows {} Left reverse samplen 2.5 "
      "width 1 spacing {} noopaque nobox\n",
      static_cast<double>(layout.left - 10) / figure.width,
      1 - static_cast<double>(above) / figure.height, layout.legend.rows,
      sizes_of(figure.format).legend_spacing);
}

std::string line_style(std::size_t run, std::size_t points) {
  constexpr std::size_t kColors = std::size(kCurveColors);
  const std::string line = fmt::format("lc rgb '{}' dt {} lw 1.7", kCurveColors[run % kColors],
                                       kCurveDashes[run / kColors]);
  return points > kVisiblePoints
             ? "with lines " + line
             : fmt::format("with linespoints {} pt {} ps 0.5", line, kPointKinds[run % kColors]);
}

std::string plot_of_panel(const Figure& figure, std::size_t number) {
  const FigurePanel& panel = figure.panels[number];
  std::vector<std::string> elements;
  for (std::size_t run = 0; figure.band && run < panel.curves.size(); ++run)
    elements.push_back(fmt::format("{} using 1:3:4 with filledcurves lc rgb '{}' notitle",
                                   block_name(number, run),
                                   kCurveColors[run % std::size(kCurveColors)]));
  for (std::size_t run = 0; run < panel.curves.size(); ++run)
    elements.push_back(fmt::format(
        "{} using 1:2 {} {}", block_name(number, run), line_style(run, panel.curves[run].size()),
        number == 0 ? "title " + gnuplot_text(figure.legend[run]) : std::string("notitle")));
  std::string script;
  for (const std::string& element : elements)
    script += (script.empty() ? "plot " : ", \\\n     ") + element;
  return script + "\n";
}

std::string y_tics(const Figure& figure, const AxisRange& y) {
  if (!has_short_log_axis(figure, y)) return "set ytics autofreq\n";
  std::string tics;
  for (const double tic : short_log_tics(y))
    tics += fmt::format("{}{:.9g}", tics.empty() ? "" : ", ", tic);
  return "set ytics (" + tics + ")\n";
}

std::string panel_script(const Figure& figure, const FigureLayout& layout, std::size_t number) {
  const double height = figure.height;
  const AxisRange y = y_range(figure, figure.panels[number]);
  const double top =
      layout.top + static_cast<double>(number) * (layout.panel + kPanelGap);  // from above
  std::string script = fmt::format(
      "set lmargin at screen {:.6f}\nset rmargin at screen {:.6f}\n"
      "set tmargin at screen {:.6f}\nset bmargin at screen {:.6f}\n",
      static_cast<double>(layout.left) / figure.width,
      1 - static_cast<double>(kRightMargin) / figure.width, 1 - top / height,
      1 - (top + layout.panel) / height);
  script += fmt::format("set yrange [{:.9g}:{:.9g}]\n", y.low, y.high);
  script += number == 0 ? legend_of_figure(figure, layout) + title_and_note(figure, layout)
                        : "unset key\nunset label\n";
  script += y_tics(figure, y);
  script += fmt::format("set label 3 {} at screen {:.6f},{:.6f} center rotate by 90 front\n",
                        gnuplot_text(figure.panels[number].y_label),
                        static_cast<double>(kYLabelAt) / figure.width,
                        1 - (top + layout.panel / 2.0) / height);
  script += number + 1 == figure.panels.size()
                ? "set format x '%g'\nset xlabel " + gnuplot_text(figure.x_label) + "\n"
                : "set format x ''\nunset xlabel\n";
  return script + plot_of_panel(figure, number);
}

std::string script_of(const Figure& figure, const FigureLayout& layout) {
  std::string script = "set encoding utf8\n" + terminal_of(figure) + "set output ARG1\n";
  script += data_blocks(figure) + style_of_panels(figure) + "set multiplot\n";
  for (std::size_t number = 0; number < figure.panels.size(); ++number)
    script += panel_script(figure, layout, number);
  return script + "unset multiplot\nset output\n";
}

}  // namespace

Expected<std::string> gnuplot_script(Figure figure) {
  const auto layout = layout_of(figure);
  if (!layout) return layout.error();
  figure.height = layout->height;
  return script_of(figure, *layout);
}

}  // namespace grapevine
