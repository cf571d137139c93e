// What `top` shows, without a terminal.
#include "apps/top/top_frame.hpp"
#include "apps/console/text/display_width.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/apps/top/status_example.hpp"

namespace grapevine {
namespace top_frame_test {

using testing::HasSubstr;
using testing::Not;

TopState stalled_state(std::int32_t ranks = 4) {
  TopState state;
  auto view = view_of(stalled_json(ranks), nullptr);
  EXPECT_TRUE(view.ok()) << view.error().message;
  state.view = *view;
  return state;
}

std::string text_of(const std::vector<FrameLine>& frame) {
  std::string text;
  for (const FrameLine& line : frame) text += line.text + "\n";
  return text;
}

TEST(TopFrame, FitsEveryWindow) {
  TopState state = stalled_state(100);
  for (const bool waits : {false, true}) {
    state.shows_waits = waits;
    for (const int rows : {1, 2, 5, 24, 300})
      for (const int columns : {1, 20, 40, 80, 250}) {
        const auto frame = top_frame(state, rows, columns);
        EXPECT_EQ(frame.size(), static_cast<std::size_t>(rows));
        for (const FrameLine& line : frame)
          EXPECT_LE(display_width(line.text), columns) << line.text;
      }
  }
}

// All columns and the keys are there at the width of an old terminal.
TEST(TopFrame, IsCompleteAt80Columns) {
  const std::string text = text_of(top_frame(stalled_state(), 24, 80));
  for (const char* part : {"ar: mlp on glyphs", "epoch 1.50 of 3.00", "no answer", "1,002", "12.5s",
                           "rank 2", "6.0 MB", "q quit", "b sent", "goodput 0.876"})
    EXPECT_THAT(text, HasSubstr(part));
}

// A figure that is cut off would read as another one: "10" of "10 MB".
TEST(TopFrame, FactsAreWholeAt80Columns) {
  TopState state = stalled_state();
  state.view->facts = {
      "gradients: 123,456 produced, 123,450 applied, 2 pending, 3 dropped, 1 destroyed; sent 10.5 "
      "MB"};
  EXPECT_THAT(text_of(top_frame(state, 24, 80)), HasSubstr("sent 10.5 MB"));
}

// Of a line of the table: columns are two spaces apart.
std::vector<std::string> cells_of(const std::string& line) {
  const std::regex gap("  +");
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  const std::string text = line.substr(first);
  return {std::sregex_token_iterator(text.begin(), text.end(), gap, -1), {}};
}

// "1,0" of "1,002", and "5.6" of "5.66", would be other figures.
TEST(TopFrame, ColumnsAreWholeOrLeftOut) {
  const TopState state = stalled_state(12);
  const std::vector<std::string> all = rank_lines(state.view->ranks, kAnyWidth);
  for (int columns = 10; columns <= 100; ++columns) {
    const std::vector<std::string> lines = rank_lines(state.view->ranks, columns);
    ASSERT_EQ(lines.size(), all.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_LE(display_width(lines[i]), columns);
      const std::vector<std::string> known = cells_of(all[i]);
      for (const std::string& cell : cells_of(lines[i]))
        EXPECT_THAT(known, testing::Contains(cell))
            << columns << " columns: '" << cell << "' in " << lines[i];
    }
    if (columns < 26) continue;
    for (const char* title : {"rank", "state", "step"})
      EXPECT_THAT(cells_of(lines[0]), testing::Contains(title)) << columns;
  }
  EXPECT_THAT(cells_of(rank_lines(state.view->ranks, kWideTable)[0]),
              testing::ElementsAreArray(cells_of(all[0])));
}

std::string unwrapped(const std::string& text) {
  return std::regex_replace(text, std::regex("\n    "), " ");
}

// Half a fact would read as a whole one, and ranks that are not seen must not be forgotten.
TEST(TopFrame, NothingIsCutUnsaidInASmallWindow) {
  const int ranks = 30;
  TopState state = stalled_state(ranks);
  for (int rows = 4; rows <= 60; ++rows)
    for (const int columns : {30, 40, 80}) {
      const std::string text = text_of(top_frame(state, rows, columns));
      const std::string where = std::to_string(rows) + "x" + std::to_string(columns) + "\n" + text;
      const std::string whole = unwrapped(text);
      for (const std::string& fact : state.view->facts)
        EXPECT_EQ(whole.find(fact.substr(0, 8)) != std::string::npos,
                  whole.find(fact + "\n") != std::string::npos)
            << fact << "\n"
            << where;
      const std::regex row("(^|\n) *\\d+ .*(waits|no answer)"), more("\nand (\\d+) more ranks");
      const auto shown = std::distance(std::sregex_iterator(text.begin(), text.end(), row), {});
      std::smatch left;
      const int out = std::regex_search(text, left, more) ? std::stoi(left[1]) : 0;
      EXPECT_EQ(shown + out, ranks) << where;
      EXPECT_GE(2 * (shown + 2), rows - 3) << where;
    }
}

TEST(TopFrame, KeysFitTheWindow) {
  const auto keys = [](int columns) { return top_frame(stalled_state(), 10, columns).back().text; };
  EXPECT_THAT(keys(80), testing::EndsWith("b sent"));
  EXPECT_THAT(keys(40), testing::EndsWith("t w b"));
  EXPECT_EQ(keys(25), "q quit  p pause  x waits");
}

TEST(TopFrame, AwaitedRanksFitTheirColumn) {
  auto status = stalled_json();
  auto& waits = status["ranks"][0]["waits_for"];
  const auto text = [&] {
    const auto view = view_of(status, nullptr);
    return view.ok() ? view->ranks[0].waits_for : view.error().message;
  };
  EXPECT_EQ(text(), "rank 2");
  for (const int from : {1, 10, 11}) waits.push_back({{"from", from}, {"message", "chunk"}});
  EXPECT_EQ(text(), "4 ranks") << waits;
}

TEST(TopFrame, CutsNoState) {
  TopState state = stalled_state();
  state.view->ranks[0].state = "changes members";
  EXPECT_THAT(text_of(top_frame(state, 24, 80)), HasSubstr("changing  "));
}

TEST(TopFrame, SortsByEachKey) {
  TopState state = stalled_state();
  const auto first_rank = [&](int key) {
    EXPECT_TRUE(press(state, key)) << key;
    const std::string text = text_of(top_frame(state, 24, 80));
    const std::size_t line = text.find('\n', text.find("rank  proc")) + 1;
    return text.substr(line, 4);
  };
  EXPECT_EQ(first_rank('s'), "   3");  // most steps
  EXPECT_EQ(first_rank('a'), "   0");  // fastest
  EXPECT_EQ(first_rank('t'), "   3");  // most staleness
  EXPECT_EQ(first_rank('w'), "   2");  // longest wait: without an answer
  EXPECT_EQ(first_rank('b'), "   0");  // most bytes
  EXPECT_EQ(first_rank('r'), "   0");
  EXPECT_FALSE(press(state, 'q'));
  EXPECT_FALSE(press(state, -1));
}

TEST(TopFrame, ShowsTheStallReportInTheirPlace) {
  TopState state = stalled_state();
  EXPECT_TRUE(press(state, 'x'));
  const std::string text = text_of(top_frame(state, 24, 80));
  EXPECT_THAT(text, HasSubstr("waits that last"));
  EXPECT_THAT(text, HasSubstr("its process is stopped"));
  EXPECT_THAT(text, HasSubstr("is & was slow"));
  EXPECT_THAT(text, Not(HasSubstr("steps/s")));
  EXPECT_TRUE(press(state, 'p'));
  EXPECT_THAT(text_of(top_frame(state, 24, 80)), HasSubstr("(paused)"));
}

TEST(TopFrame, ShowsWhyNothingNewComes) {
  TopState state = stalled_state();
  state.problem = "process 0 does not answer";
  const std::string reason = "process 0 of the run in 'runs/first' does not answer: it is stopped";
  EXPECT_THAT(unwrapped(text_of(top_frame({{}, reason}, 10, 40))), HasSubstr(reason));
  EXPECT_THAT(text_of(top_frame(state, 24, 80)), HasSubstr("process 0 does not answer"));
  EXPECT_THAT(text_of(top_frame({}, 24, 80)), HasSubstr("asking the run"));
}

// The process of rank 2 does not answer, and that of rank 1 cannot send.
TEST(TopFrame, ShowsWhatWaitsToBeSent) {
  const std::string text = text_of(top_frame(stalled_state(), 24, kWideTable));
  EXPECT_THAT(text, HasSubstr("waits to be sent: at most 7.3 MB, in process 1"));
  EXPECT_THAT(text, testing::ContainsRegex("  1 +1  .* 7.3 MB .*rank 2\n"));
  EXPECT_THAT(text, testing::ContainsRegex("  2 +2  no answer .*  -  +12.5s"));
  const std::string narrow = text_of(top_frame(stalled_state(), 24, 80));
  EXPECT_THAT(narrow, HasSubstr("at most 7.3 MB, in process 1"));
  EXPECT_THAT(narrow, Not(HasSubstr("queued")));
  RunStatus idle = stalled_status();
  idle.queued_bytes.assign(4, 0);
  EXPECT_THAT(text_of(*view_of(status_json(idle, {}), nullptr)),
              testing::AllOf(HasSubstr("queued"), Not(HasSubstr("waits to be sent"))));
}

// What a lost rank had not applied is not pending any more.
TEST(StatusView, WhatIsDestroyedIsNotPending) {
  RunStatus status;
  status.ranks.resize(2);
  status.ranks[0].ledger.produced = 8;
  status.ranks[0].ledger.committed = 6;
  status.ranks[1].lost = true;
  status.ranks[1].ledger.produced = 10;
  status.ranks[1].ledger.committed = 7;
  status.destroyed = 3;
  const auto counts = status_json(status, {})["contributions"];
  EXPECT_EQ(counts["produced"], 18);
  EXPECT_EQ(counts["pending"], 2);
  EXPECT_EQ(counts["destroyed"], 3);
}

TEST(StatusView, RatesOfBytesAreBetweenTwoAnswers) {
  RunStatus status = stalled_status();
  const RunDescription facts;
  const auto before = view_of(status_json(status, facts), nullptr);
  status.time_s += 2;
  status.ranks[1].ledger.bytes_sent += 500;
  const auto after = view_of(status_json(status, facts), &*before);
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(std::isnan(before->ranks[1].bytes_per_s));
  EXPECT_DOUBLE_EQ(after->ranks[1].bytes_per_s, 250);
  EXPECT_DOUBLE_EQ(after->ranks[0].bytes_per_s, 0);
}

// A server of another version, or another program.
TEST(StatusView, RefusesWhatIsNoStatus) {
  for (const char* text : {"{}", "{\"run\":3}", "[]", "null"})
    EXPECT_FALSE(view_of(nlohmann::ordered_json::parse(text), nullptr).ok()) << text;
  auto broken = stalled_json();
  broken["ranks"][0]["steps"] = "many";
  EXPECT_FALSE(view_of(broken, nullptr).ok());
}

}  // namespace top_frame_test
}  // namespace grapevine
