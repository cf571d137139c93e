// The page of `trace --html`, opened in a browser: what stands there is what the trace says, and
// nothing leaves it. Each check is seen to fail as well, on a page that is broken on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "apps/trace/report/report_page.hpp"
#include "tests/apps/trace/browser.hpp"
#include "tests/apps/trace/synthetic_run.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace report_test {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// `text` with the one place of `what` changed.
std::string with(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  EXPECT_EQ(text.find(what, at + 1), std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

std::string without_policy(const std::string& page) {
  const std::size_t begin = page.find("<meta http-equiv"), end = page.find(">\n", begin);
  return page.substr(0, begin) + page.substr(end + 2);
}

class ReportPage : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("grapevine_report_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void find_browser() {
    browser_ = Browser::find(folder_);
    if (!browser_)
      GTEST_SKIP() << "there is no Chromium here (Debian: chromium): the page is not opened";
  }

  // Writes the page of a run.
  std::filesystem::path page_of(const SyntheticRun& run) {
    const auto folder = folder_ / "a run";
    SyntheticTrace(run, folder).write();
    read_.emplace(folder);
    const auto page = folder_ / "page.html";
    const auto written = write_report(page.string(), read_->inputs);
    EXPECT_TRUE(written.ok()) << (written ? "" : written.error().message);
    return page;
  }
  std::filesystem::path page_with(const std::string& html) const {
    std::ofstream(folder_ / "changed.html", std::ios::binary) << html;
    return folder_ / "changed.html";
  }

  static void expect_quiet(const OpenedPage& page) {
    EXPECT_EQ(page.problem, "");
    EXPECT_EQ(page.attribute("", "data-ready"), "true");
    EXPECT_THAT(page.console, IsEmpty());
    EXPECT_THAT(page.requests, IsEmpty());
    EXPECT_EQ(page.attribute("", "data-errors"), "(none)");
    EXPECT_EQ(page.attribute("", "data-violations"), "(none)");
    EXPECT_EQ(page.attribute("", "data-requests"), "0");
  }
  static void expect_drawn(const OpenedPage& page, const std::string& id) {
    EXPECT_EQ(page.attribute(id, "data-drawn"), "true") << id;
    EXPECT_GT(page.number(id, "data-ink"), 0.01) << id;
    EXPECT_GT(page.attribute(id, "aria-label").size(), 20u) << id;
  }
  static void expect_all_drawn(const OpenedPage& page) {
    for (const char* id :
         {"loss-chart", "accuracy-chart", "staleness-chart", "heat-chart", "traffic-chart"})
      expect_drawn(page, id);
  }
  // Of the layer of the heat map that is shown.
  static std::size_t cells_with_value(const nlohmann::ordered_json& layer) {
    std::size_t cells = 0;
    for (const auto& value : layer) cells += value.is_number() ? 1u : 0u;
    return cells;
  }

  std::filesystem::path folder_;
  std::optional<ReadRun> read_;
  std::optional<Browser> browser_;
};

TEST_F(ReportPage, IsOneFileWithoutAddresses) {
  const std::string page = read_file(page_of({}));
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted, free of charge"));
  EXPECT_THAT(page, HasSubstr("Chart.js Contributors"));
  EXPECT_LT(page.size(), 400'000u);
}

TEST_F(ReportPage, StaysSmallWhateverTheRun) {
  // 256 ranks that all send to each other, over a long time.
  ReportCollector collector(256);
  ReportInputs inputs;
  for (std::int64_t time_s = 0; time_s < 100'000; ++time_s) {
    TraceRecord record;
    record.time_ns = time_s * 1'000'000'000;
    record.kind = EventKind::applied;
    record.rank = static_cast<Rank>(time_s % 256);
    record.staleness = time_s * 7919 % 10'007;
    collector.add(record);
  }
  collector.finish();
  inputs.collector = &collector;
  for (Rank from = 0; from < 256; ++from)
    for (Rank to = 0; to < 256; ++to)
      inputs.figures["edges"].push_back({{"from", from},
                                         {"to", to},
                                         {"messages", 12345678},
                                         {"bytes", 1234567890123 + from * to},
                                         {"mean_staleness", 1.2345678901234},
                                         {"p99_latency_s", 0.0012345678901234}});
  for (int value = 0; value < 5000; ++value)
    inputs.figures["staleness"]["histogram"][std::to_string(value)] = 1'000'000 - value;
  inputs.chains.assign(100'000, "a long line of a chain of waits");
  EXPECT_LT(report_html(inputs).size(), 3'000'000u);
}

TEST_F(ReportPage, ReplacesNoFileThatItCannotWrite) {
  page_of({});
  const auto written = write_report((folder_ / "none" / "page.html").string(), read_->inputs);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Errc::io);
  EXPECT_THAT(written.error().message, HasSubstr("page.html"));
}

TEST_F(ReportPage, DrawsWhatTheTraceSays) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const OpenedPage page = browser_->open(page_of({}), "#probe");
  expect_quiet(page);
  expect_all_drawn(page);
  const nlohmann::ordered_json data = report_data(read_->inputs);
  std::size_t bars = 0;
  for (const auto& bar : data["staleness"]["bars"]) bars += bar[2] > 0 ? 1u : 0u;
  EXPECT_GT(bars, 3u);
  EXPECT_EQ(page.number("staleness-chart", "data-bars"), static_cast<double>(bars));
  EXPECT_EQ(page.number("heat-chart", "data-cells"),
            static_cast<double>(cells_with_value(data["heat"]["staleness"])));
  EXPECT_EQ(page.number("traffic-chart", "data-cells"),
            static_cast<double>(read_->inputs.figures["edges"].size()));
  EXPECT_EQ(page.number("loss-chart", "data-points"),
            static_cast<double>(data["curves"]["by_time"].size()));
  EXPECT_EQ(page.number("loss-chart", "data-tests"), 4);
  EXPECT_EQ(page.number("slow-body", "data-lanes"), ReportCollector::kSlowSteps);
  EXPECT_EQ(page.number("blame-body", "data-culprits"), 4);
  EXPECT_EQ(page.attribute("ledger-body", "data-agrees"), "true");
  EXPECT_THAT(page.attribute("notes", "hidden"), "");
  EXPECT_THAT(page.dom, HasSubstr(read_->inputs.chains[1]));
  EXPECT_THAT(page.dom, HasSubstr("messages from rank 3 to rank 2"))
      << "a link's rank is its sender";
  // Those of the trace, as its number of messages is; summary.json has 184 MB.
  EXPECT_THAT(page.dom, HasSubstr("395 MB sent"));
}

TEST_F(ReportPage, SaysWhereTheLedgerDoesNotAgree) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  page_of({});
  read_->inputs.figures["contributions"]["destroyed"] = 3;
  const OpenedPage page = browser_->open(page_with(report_html(read_->inputs)), "#probe");
  EXPECT_EQ(page.attribute("ledger-body", "data-agrees"), "false");
  EXPECT_THAT(page.dom, HasSubstr("3 contributions too many"));
}

TEST_F(ReportPage, SaysWhatAKilledRunLacks) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  SyntheticRun run;
  run.killed = true;
  const OpenedPage page = browser_->open(page_of(run), "#probe");
  expect_quiet(page);
  expect_all_drawn(page);
  EXPECT_EQ(page.attribute("notes", "hidden"), "(none)");
  EXPECT_THAT(page.dom, HasSubstr("There is no summary.json"));
  EXPECT_THAT(page.dom, HasSubstr("the last frame is cut off"));
  EXPECT_THAT(page.dom, HasSubstr("not ended"));
  EXPECT_THAT(page.dom, HasSubstr("sgp: lenet on glyphs"));  // of job.toml
}

TEST_F(ReportPage, OfNothingHasNoEmptyChart) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  ReportCollector collector(1);
  collector.finish();
  ReportInputs inputs;
  inputs.run = (folder_ / "no run").string();
  inputs.collector = &collector;
  const OpenedPage page = browser_->open(page_with(report_html(inputs)), "#probe");
  expect_quiet(page);
  EXPECT_THAT(page.dom, Not(HasSubstr("<canvas")));
  EXPECT_THAT(page.dom, HasSubstr("The trace has no applied update."));
  EXPECT_THAT(page.dom, HasSubstr("metrics.csv' cannot be read"));
}

TEST_F(ReportPage, ShowsHostileNamesAsText) {
  SyntheticRun run;
  run.ranks = 3;
  run.model = "</script><script>document.title='taken'</script><img src=x>\xff\xe2\x80\xa8{{DATA}}";
  run.host = "<!--<script>\"'&amp;";
  const auto path = page_of(run);
  const std::string html = read_file(path);
  EXPECT_THAT(html, Not(HasSubstr("<script>document.title")));
  EXPECT_THAT(html, Not(HasSubstr("<!--<script>")));
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const OpenedPage page = browser_->open(path, "#probe");
  expect_quiet(page);
  EXPECT_THAT(page.dom, HasSubstr("<title>a run · sgp</title>"));
  EXPECT_THAT(page.dom, HasSubstr("&lt;/script&gt;&lt;script&gt;document.title='taken'"));
  EXPECT_THAT(page.dom, Not(HasSubstr("<img")));
}

TEST_F(ReportPage, FitsAPhoneAndAManyRankRun) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  SyntheticRun run;
  run.ranks = 256;
  run.steps = 40;
  const auto path = page_of(run);
  // A window cannot be as narrow as a phone, a frame can; its page is read through the wrapper.
  const OpenedPage page = browser_->open(
      page_with("<!doctype html><iframe id=f width=360 height=700 src='" +
                path.filename().string() +
                "#probe'></iframe><script>f.onload = () => Object.assign("
                "document.documentElement.dataset, f.contentDocument.documentElement.dataset,"
                "{wide: f.contentWindow.innerWidth,"
                "ink: f.contentDocument.getElementById('traffic-chart').dataset.ink})</script>"),
      "", {"--disable-web-security", "--allow-file-access-from-files"});
  EXPECT_EQ(page.problem, "");
  EXPECT_THAT(page.console, IsEmpty());
  EXPECT_EQ(page.attribute("", "data-ready"), "true");
  EXPECT_EQ(page.attribute("", "data-wide"), "360");
  EXPECT_EQ(page.attribute("", "data-overflow"), "0");
  EXPECT_GT(page.number("", "data-ink"), 0.01);
}

TEST_F(ReportPage, DrawsInDarkColours) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const OpenedPage page =
      browser_->open(page_of({}), "#probe", {"--blink-settings=preferredColorScheme=0"});
  expect_quiet(page);
  expect_all_drawn(page);
  EXPECT_THAT(page.dom, HasSubstr("Light colours"));  // what the button would do
}

// ---- The checks notice what they are for.

TEST_F(ReportPage, APageThatAsksForSomethingIsNoticed) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const std::string asking =
      with(read_file(page_of({})), "<footer>", "<footer><img src=\"http://tracker.invalid/a\">");
  const OpenedPage refused = browser_->open(page_with(asking), "#probe");
  EXPECT_THAT(refused.console, Not(IsEmpty()));
  EXPECT_THAT(refused.requests, IsEmpty());
  const OpenedPage asked = browser_->open(page_with(without_policy(asking)), "#probe");
  EXPECT_THAT(asked.requests, testing::Contains("http://tracker.invalid/a"));
}

TEST_F(ReportPage, AChangedScriptDoesNotRun) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const std::string changed = with(read_file(page_of({})), "'use strict';\n(() => {\n  const data",
                                   "'use strict';\n(() => {\n  fetch('x'); const data");
  const OpenedPage page = browser_->open(page_with(changed), "#probe");
  EXPECT_EQ(page.attribute("", "data-ready"), "(none)");
  EXPECT_THAT(page.console, Not(IsEmpty()));
}

TEST_F(ReportPage, ABlankCanvasIsNoticed) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const std::string blank = without_policy(
      with(read_file(page_of({})), "  if (location.hash === '#probe') probe();",
           "  for (const c of document.querySelectorAll('canvas')) c.width = c.width;\n"
           "  if (location.hash === '#probe') probe();"));
  const OpenedPage page = browser_->open(page_with(blank), "#probe");
  EXPECT_EQ(page.attribute("", "data-ready"), "true");
  for (const char* id : {"loss-chart", "staleness-chart", "heat-chart", "traffic-chart"})
    EXPECT_EQ(page.number(id, "data-ink"), 0) << id;
}

TEST_F(ReportPage, AnErrorOfTheScriptAndAMissingBarAreNoticed) {
  ASSERT_NO_FATAL_FAILURE(find_browser());
  if (IsSkipped()) return;
  const std::string html = read_file(page_of({}));
  const OpenedPage thrown = browser_->open(
      page_with(without_policy(with(html, "  drawBlame();\n", "  drawBlame();\n  nothing();\n"))),
      "#probe");
  EXPECT_THAT(thrown.console, Not(IsEmpty()));
  EXPECT_EQ(thrown.attribute("", "data-ready"), "(none)");
  EXPECT_EQ(thrown.attribute("", "data-errors"), "1");
  const double bars =
      browser_->open(page_with(html), "#probe").number("staleness-chart", "data-bars");
  const std::string fewer = without_policy(
      with(html, "data: bars.map((bar) => bar[2]", "data: bars.slice(1).map((bar) => bar[2]"));
  EXPECT_EQ(browser_->open(page_with(fewer), "#probe").number("staleness-chart", "data-bars"),
            bars - 1);
}

}  // namespace report_test
}  // namespace grapevine
