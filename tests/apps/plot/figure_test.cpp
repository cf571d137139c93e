#include "apps/plot/figure.hpp"

#include <gtest/gtest.h>

#include <set>

namespace grapevine {
namespace figure_test {

Figure figure_with(std::size_t runs) {
  Figure figure;
  figure.x_label = "step of a rank";
  FigurePanel panel{"training loss", {}};
  for (std::size_t run = 0; run < runs; ++run) {
    figure.legend.push_back("run " + std::to_string(run));
    panel.curves.push_back({{0, 2, 1, 3}, {1, 1, 0.5, 2}});
  }
  figure.panels.push_back(panel);
  return figure;
}

std::string script_for(const Figure& figure) {
  const auto script = gnuplot_script(figure);
  EXPECT_TRUE(script.ok()) << script.error().message;
  return script.ok() ? *script : "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The style of a run's curve, without its data and its title.
std::set<std::string> styles_in(const std::string& script) {
  std::set<std::string> styles;
  for (std::size_t at = 0; (at = script.find("using 1:2 ", at)) != std::string::npos; ++at)
    styles.insert(script.substr(at, script.find(" title ", at) - at));
  return styles;
}

TEST(Figure, RunsDifferInStyle) {
  EXPECT_EQ(styles_in(script_for(figure_with(kMostRunsInFigure))).size(), kMostRunsInFigure);
}

// Only numbers and texts in single quotes: nothing of a text is a command of gnuplot.
TEST(Figure, TextsAreQuoted) {
  Figure figure = figure_with(1);
  figure.legend[0] = "it's `date` \"a\" a_b^{2} @x \\n\n|$HOME";
  figure.title = "'\nset output '|touch /tmp/x'\n";
  const std::string script = script_for(figure);
  EXPECT_TRUE(has(script, "title 'it''s `date` \"a\" a_b^{2} @x \\n?|$HOME'\n")) << script;
  EXPECT_TRUE(has(script, "set label 1 '''?set output ''|touch /tmp/x''?' at screen")) << script;
  EXPECT_TRUE(has(script, " noenhanced "));
}

TEST(Figure, TextsAreUtf8) {
  Figure figure = figure_with(1);
  figure.legend[0] = "caf\xc3\xa9 \xff \x1b[1m \xed\xa0\x80";
  EXPECT_TRUE(has(script_for(figure), "title 'caf\xc3\xa9 \xef\xbf\xbd ?[1m "));
}

TEST(Figure, EachPanelHasItsLabelAndTheLastOneTheAxis) {
  Figure figure = figure_with(2);
  figure.panels.push_back({"learning rate", figure.panels[0].curves});
  const std::string script = script_for(figure);
  const auto first = script.find("'training loss'"), second = script.find("'learning rate'"),
             axis = script.find("'step of a rank'");
  EXPECT_LT(first, second);
  EXPECT_LT(second, axis);
  EXPECT_NE(axis, std::string::npos);
  EXPECT_EQ(script.find("'run 1'"), script.rfind("'run 1'")) << "one legend";
}

TEST(Figure, HeightGrowsWithTheLegend) {
  const auto height = [](const Figure& figure) {
    const std::string script = script_for(figure);
    const std::string start = "size 900,";
    return std::stoi(script.substr(script.find(start) + start.size()));
  };
  EXPECT_LT(height(figure_with(2)), height(figure_with(20)));
  Figure fixed = figure_with(2);
  fixed.height = 333;
  EXPECT_EQ(height(fixed), 333);
}

TEST(Figure, SizesThatAreTooSmallAreRefused) {
  Figure narrow = figure_with(1);
  narrow.legend[0] = std::string(200, 'a');
  const auto refused = gnuplot_script(narrow);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().message, "--width 900: the longest name"));
  Figure low = figure_with(20);
  low.height = 200;
  const auto also = gnuplot_script(low);
  ASSERT_FALSE(also.ok());
  EXPECT_TRUE(has(also.error().message, "--height 200: ")) << also.error().message;
}

TEST(Figure, ValuesThatAreAllTheSameHaveAnAxis) {
  Figure figure = figure_with(1);
  for (CurvePoint& point : figure.panels[0].curves[0]) point = {point.x, 0, 0, 0};
  EXPECT_TRUE(has(script_for(figure), "set yrange [0:1]\n"));
  figure.panels[0].curves[0] = {{5, 0.03, 0.03, 0.03}};
  EXPECT_TRUE(has(script_for(figure), "set yrange [0:0.06]\n"));
  EXPECT_TRUE(has(script_for(figure), "set xrange [4.5:5.5]\n"));
}

double left_margin_in(const std::string& script, const Figure& figure) {
  const std::string start = "set lmargin at screen ";
  const std::size_t at = script.find(start);
  EXPECT_NE(at, std::string::npos);
  return std::stod(script.substr(at + start.size())) * figure.width;
}

// Beside the axis stand its label, 26 pixels wide at most, "0.0001055" and the like, and 18 pixels
// of the tics and the space around them.
TEST(Figure, TheLeftMarginHasRoomForTheNumbersOfTheAxis) {
  Figure figure = figure_with(1);
  EXPECT_NEAR(left_margin_in(script_for(figure), figure), 96, 0.01) << "short numbers";
  figure.panels[0].curves[0] = {{0, 0.000105, 0.000105, 0.000105}, {1, 0.00011, 0.00011, 0.00011}};
  EXPECT_GT(left_margin_in(script_for(figure), figure), 26 + 9 * 7.5 + 18);
  figure.panels[0].curves[0] = {{0, -1e-9, -1e-9, -1e-9}, {1, 1, 1, 1}};
  EXPECT_LT(left_margin_in(script_for(figure), figure), 200);
}

TEST(Figure, ALogarithmicAxisHasGapsForZero) {
  Figure figure = figure_with(1);
  figure.log_y = true;
  figure.panels[0].curves[0] = {{0, 0, 0, 0}, {1, 90, 90, 90}, {2, 99, 99, 99}};
  const std::string script = script_for(figure);
  EXPECT_TRUE(has(script, "\n0 NaN ")) << script;
  EXPECT_TRUE(has(script, "set ytics (90, 92, 94, 96, 98)\n")) << script;
  figure.panels[0].curves[0][0] = {0, 20, 20, 20};
  EXPECT_TRUE(has(script_for(figure), "set ytics (20, 50, 100)\n")) << script_for(figure);
}

}  // namespace figure_test
}  // namespace grapevine
