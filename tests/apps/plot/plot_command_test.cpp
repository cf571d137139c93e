#include "apps/plot/plot_command.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "apps/plot/gnuplot.hpp"
#include "messages/trace/trace_file.hpp"
#include "tests/apps/plot/metrics_file.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace plot_command_test {

namespace fs = std::filesystem;
using testing_apps::kMetricsHeader;
using testing_apps::step_row;
using testing_apps::validation_row;

const testing_apps::VerbRunner kVerb(make_plot_command);

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++found;
  return found;
}

std::string quoted_argument(const std::string& argument) { return "'" + argument + "'"; }

class PlotCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "plot_command_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The losses of two ranks over four steps, and a validation.
  std::string run(const std::string& name, double loss = 2) const {
    fs::create_directories(folder_ / name);
    std::ofstream rows(folder_ / name / "metrics.csv");
    rows << kMetricsHeader;
    for (int step = 0; step < 4; ++step)
      for (int rank = 0; rank < 2; ++rank)
        rows << step_row(rank, step, step + 0.5 * rank, loss / (step + 1) + 0.1 * rank);
    rows << validation_row(0, 3, loss / 4) << "1,1.25,5,3.7";
    std::ofstream(folder_ / name / "job.toml") << "algorithm = 'sgp'\n";
    return quoted_argument((folder_ / name).string());
  }
  std::string out(const std::string& name) const {
    return " --out " + quoted_argument((folder_ / name).string());
  }

  fs::path folder_;
};

// Those that draw.
class PlotFigure : public PlotCommand {
 protected:
  void SetUp() override {
    if (!find_gnuplot().ok()) GTEST_SKIP() << "gnuplot is not installed (package gnuplot-nox)";
    PlotCommand::SetUp();
  }
};

TEST_F(PlotFigure, AnSvgHasCurvesLegendAndLabels) {
  const auto printed = nlohmann::json::parse(
      kVerb.output(run("a") + " " + run("b", 4) + " --y loss,val_top1" +
                   " --title Curves --smooth 2 --band --json" + out("c.svg")));
  EXPECT_EQ(printed["out"], (folder_ / "c.svg").string());
  ASSERT_EQ(printed["runs"].size(), 2U);
  EXPECT_EQ(printed["runs"][1]["run"], (folder_ / "b").string());
  EXPECT_EQ(printed["runs"][1]["legend"], "sgp: b");
  EXPECT_EQ(printed["runs"][1]["points"], (nlohmann::json{{"loss", 4}, {"val_top1", 1}}));
  const std::string svg = read_file(folder_ / "c.svg");
  const std::string note =
      "Mean of as many steps, in the order of time, as there are ranks, average over 2 points; "
      "band: from the lowest to the highest";
  for (const std::string& text :
       {std::string("Curves"), std::string("sgp: a"), std::string("sgp: b"),
        std::string("training loss"), std::string("validation top-1 accuracy (%)"),
        std::string("time of training (s)"), note})
    EXPECT_EQ(count(svg, "<text>" + text + "</text>"), 1U) << text;
  // In each panel a band and a curve of both runs.
  EXPECT_EQ(count(svg, "<g id=\"gnuplot_plot_"), 8U);
  for (const std::string color : {"rgb(  0, 114, 178)", "rgb(213,  94,   0)"})
    EXPECT_GE(count(svg, "<path stroke='" + color + "'  d='M"), 1U) << color;
}

TEST_F(PlotFigure, APngHasTheSizeThatWasAsked) {
  kVerb.output(run("a") + " --x epoch --log-y --width 640 --height 300" + out("c.png"));
  const std::string png = read_file(folder_ / "c.png");
  ASSERT_GT(png.size(), 1000U);
  EXPECT_EQ(png.substr(1, 3), "PNG");
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\2\x80\0\0\1\x2c", 8));
  EXPECT_EQ(count(png, "IEND"), 1U);
}

// Every kind of figure once: gnuplot takes each script without an error.
TEST_F(PlotFigure, EveryColumnCanBeDrawn) {
  for (const std::string x : {"time", "step", "epoch"})
    for (const std::string y : {"loss,top1,top5,val_loss,val_top1", "lr,batch_time_s,staleness",
                                "val_top5,exchange_time_s,data_time_s"})
      kVerb.output(run("a") + " --x " + x + " --y " + y + out("c.svg"));
  kVerb.output(run("a") + " --log-y --band --y loss,top1,val_loss,val_top1,lr" + out("c.svg"));
}

TEST_F(PlotFigure, HostileNamesAreTexts) {
  const std::string name = "a_b^c{d} `touch pwned` & <b> \"q\" @x $(id) \\n ]]> %d";
  kVerb.output(run(name) + " " + run("|touch pwned") + " " + run("-d") + out("c.svg"));
  const std::string svg = read_file(folder_ / "c.svg");
  EXPECT_EQ(count(svg,
                  "<text>sgp: a_b^c{d} `touch pwned` &amp; &lt;b> \"q\" @x $(id) \\n ]]&gt; "
                  "%d</text>"),
            1U)
      << svg;
  EXPECT_EQ(count(svg, "<text>sgp: |touch pwned</text>"), 1U);
  EXPECT_FALSE(fs::exists("pwned"));
}

TEST_F(PlotFigure, AnEarlierFigureIsReplacedAndNothingElseLeft) {
  kVerb.output(run("a") + out("c.svg"));
  const std::string first = read_file(folder_ / "c.svg");
  kVerb.output(run("a") + " --title again" + out("c.svg"));
  EXPECT_NE(read_file(folder_ / "c.svg"), first);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 2U) << "the run and the figure";
}

// A run of many steps: the file stays small.
TEST_F(PlotFigure, LongCurvesAreThinned) {
  const std::string name = run("long");
  std::ofstream rows(folder_ / "long" / "metrics.csv");
  rows << kMetricsHeader;
  for (int step = 0; step < 30000; ++step) rows << step_row(0, step, step, step % 7);
  rows.close();
  const auto printed = nlohmann::json::parse(kVerb.output(name + " --json" + out("c.svg")));
  EXPECT_EQ(printed["runs"][0]["points"]["loss"], 30000);
  EXPECT_LT(fs::file_size(folder_ / "c.svg"), 100000U);
  EXPECT_NE(read_file(folder_ / "c.svg").find("time of training (h)"), std::string::npos);
}

// The bytes of a trace that is not whole are not those of the run.
TEST_F(PlotFigure, BytesOfATraceWithGapsAreToldOf) {
  const std::string a = run("a"), arguments = a + " --x bytes" + out("c.svg");
  const auto write_trace = [this](std::int64_t sampled, bool closed) {
    const fs::path folder = folder_ / "a" / "trace";
    fs::remove_all(folder);
    fs::create_directories(folder);
    TraceHeader header;
    header.workers = 2;
    header.ranks = {0, 1};
    header.sampled = sampled;
    TraceFileWriter writer(folder.string(), header, 0);
    TraceRecord sent;
    sent.kind = EventKind::sent;
    sent.peer = 1;
    sent.bytes = 1000;
    std::string frames;
    append_records(frames, {sent});
    EXPECT_TRUE(writer.write(frames).ok());
    if (closed) {
      EXPECT_TRUE(writer.close().ok());
    }
  };
  write_trace(1, true);
  kVerb.output(arguments);
  write_trace(1, false);
  const auto people = kVerb.run(arguments, false);
  EXPECT_TRUE(people.result.ok());
  EXPECT_EQ(people.err.rfind("note: " + (folder_ / "a").string() + ": process 0 has not closed", 0),
            0U)
      << people.err;
  const auto printed = nlohmann::json::parse(kVerb.output(arguments + " --json"));
  ASSERT_EQ(printed["runs"][0]["missing"].size(), 1U);
  EXPECT_EQ(nlohmann::json::parse(kVerb.output(a + " --json" + out("c.svg")))["runs"][0]["missing"],
            nlohmann::json::array())
      << "no other axis needs the trace";
  write_trace(10, true);
  const std::string message = kVerb.error(arguments);
  EXPECT_NE(message.find("every 10th step (--trace-sample)"), std::string::npos) << message;
}

TEST_F(PlotCommand, BadInputIsNamed) {
  const std::string a = run("a"), figure = out("c.svg");
  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const std::string message = kVerb.error(arguments);
    EXPECT_NE(message.find(part), std::string::npos) << arguments << ": " << message;
  };
  refused(a + " --y los" + figure, "unknown --y 'los': did you mean 'loss'?");
  refused(a + " --x tiem" + figure, "unknown --x 'tiem': did you mean 'time'?");
  refused(a + " --y loss,loss" + figure, "--y loss: is given twice");
  refused(a + " --y goodput" + figure, "--y goodput: metrics.csv does not record");
  refused(a + " --smooth 0" + figure, "--smooth 0: expected 1..10000");
  refused(a + " --width 99" + figure, "--width 99");
  refused(a + " --height 99999" + figure, "--height 99999");
  refused(a + out("c.pdf"), "ends in .svg or .png");
  refused(a + "/none" + figure, "no such run");
  EXPECT_FALSE(fs::exists(folder_ / "c.svg"));
}

TEST_F(PlotFigure, ColumnsWithoutValuesAreNamed) {
  const std::string a = run("a"), figure = out("c.svg");
  std::ofstream(folder_ / "a" / "metrics.csv") << kMetricsHeader << step_row(0, 0, 0, 0);
  EXPECT_NE(kVerb.error(a + " --y val_loss" + figure).find("/a: has no values of val_loss yet"),
            std::string::npos);
  EXPECT_NE(kVerb.error(a + " --log-y" + figure).find("--log-y: loss of "), std::string::npos);
  EXPECT_NE(kVerb.error(a + " --x bytes" + figure).find("/a: has no trace; "), std::string::npos);
  std::ofstream(folder_ / "a" / "metrics.csv") << kMetricsHeader;
  EXPECT_NE(kVerb.error(a + figure).find("has no rows"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "c.svg"));
}

}  // namespace plot_command_test
}  // namespace grapevine
