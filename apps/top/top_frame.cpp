#include "apps/top/top_frame.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "apps/console/text/display_width.hpp"

namespace grapevine {
namespace {

using Style = FrameLine::Style;

constexpr char kKeys[] =
    "q quit  p pause  x waits  sort: r rank s step a rate t stale w wait b sent";

const std::map<int, RowOrder>& orders() {
  static const std::map<int, RowOrder> keys = {{'r', RowOrder::rank}, {'s', RowOrder::step},
                                               {'a', RowOrder::rate}, {'t', RowOrder::staleness},
                                               {'w', RowOrder::wait}, {'b', RowOrder::bytes}};
  return keys;
}

bool is_alarming(const RankRow& row) { return row.state == "no answer" || row.state == "lost"; }

std::vector<std::string> wrapped(const std::string& text, int columns) {
  return wrapped_lines(text, columns - 1, "    ");
}

void add_ranks(std::vector<FrameLine>& frame, const TopState& state, int columns) {
  std::vector<RankRow> rows = state.view->ranks;
  sort_rows(rows, state.order);
  const std::vector<std::string> lines = rank_lines(rows, columns);
  frame.push_back({lines.front(), Style::heading});
  for (std::size_t i = 0; i < rows.size(); ++i)
    frame.push_back({lines[i + 1], is_alarming(rows[i]) ? Style::alarm : Style::plain});
}

void add_waits(std::vector<FrameLine>& frame, const StatusView& view, int columns) {
  frame.push_back({"waits that last", Style::heading});
  if (view.waits.empty()) frame.push_back({"none"});
  for (const std::string& wait : view.waits)
    for (std::string& line : wrapped(wait, columns))
      frame.push_back({std::move(line), Style::alarm});
  frame.push_back({""});
  frame.push_back({"events, the newest first", Style::heading});
  for (auto event = view.events.rbegin(); event != view.events.rend(); ++event)
    for (std::string& line : wrapped(*event, columns)) frame.push_back({std::move(line)});
}

}  // namespace

std::vector<FrameLine> top_frame(const TopState& state, int rows, int columns) {
  std::vector<FrameLine> frame;
  const std::string title = state.view ? state.view->title : "grapevine top";
  frame.push_back({title + (state.paused ? "  (paused)" : ""), Style::title});
  if (state.view)
    for (const std::string& fact : state.view->facts)
      for (std::string& line : wrapped(fact, columns)) frame.push_back({std::move(line)});
  else if (state.problem.empty())
    frame.push_back({"asking the run"});
  frame.push_back({state.problem, Style::alarm});
  if (state.view)
    state.shows_waits ? add_waits(frame, *state.view, columns) : add_ranks(frame, state, columns);
  const auto room = static_cast<std::size_t>(std::max(1, rows - 1));
  frame.resize(room);
  if (rows > 1) frame.push_back({kKeys, Style::heading});
  for (FrameLine& line : frame) line.text = truncate_to_width(line.text, columns);
  return frame;
}

bool press(TopState& state, int key) {
  if (key == 'p')
    state.paused = !state.paused;
  else if (key == 'x')
    state.shows_waits = !state.shows_waits;
  else if (const auto order = orders().find(key); order != orders().end())
    state.order = order->second;
  else
    return false;
  return true;
}

}  // namespace grapevine
