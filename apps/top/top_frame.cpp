#include "apps/top/top_frame.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "apps/console/text/display_width.hpp"

namespace grapevine {
namespace {

using Style = FrameLine::Style;

// The longest that fits is shown.
constexpr std::array<const char*, 4> kKeys = {
    "q quit  p pause  x waits  sort: r rank s step a rate t stale w wait b sent",
    "q quit p pause x waits sort: r s a t w b", "q quit  p pause  x waits", "q quit"};

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

std::vector<FrameLine> rank_part(const TopState& state, int columns) {
  std::vector<RankRow> rows = state.view->ranks;
  sort_rows(rows, state.order);
  const std::vector<std::string> lines = rank_lines(rows, columns);
  std::vector<FrameLine> part = {{lines.front(), Style::heading}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    part.push_back({lines[i + 1], is_alarming(rows[i]) ? Style::alarm : Style::plain});
  return part;
}

std::vector<FrameLine> wait_part(const StatusView& view, int columns) {
  std::vector<FrameLine> part = {{"waits that last", Style::heading}};
  if (view.waits.empty()) part.push_back({"none"});
  for (const std::string& wait : view.waits)
    for (std::string& line : wrapped(wait, columns))
      part.push_back({std::move(line), Style::alarm});
  part.push_back({""});
  part.push_back({"events, the newest first", Style::heading});
  if (view.events.empty()) part.push_back({"none"});
  for (auto event = view.events.rbegin(); event != view.events.rend(); ++event)
    for (std::string& line : wrapped(*event, columns)) part.push_back({std::move(line)});
  return part;
}

// The newest status in words, each fact whole or not at all; the first facts where not all have
// room.
std::vector<FrameLine> fact_part(const TopState& state, int columns, std::size_t room) {
  std::vector<FrameLine> part;
  if (!state.view) {
    if (state.problem.empty()) part.push_back({"asking the run"});
    return part;
  }
  for (const std::string& fact : state.view->facts) {
    const std::vector<std::string> lines = wrapped(fact, columns);
    if (part.size() + lines.size() > room) break;
    for (const std::string& line : lines) part.push_back({line});
  }
  return part;
}

void append(std::vector<FrameLine>& frame, const std::vector<FrameLine>& part) {
  frame.insert(frame.end(), part.begin(), part.end());
}

// `part`, a heading and its lines, in `room` lines; the last one counts those that are left out.
std::vector<FrameLine> cut(std::vector<FrameLine> part, std::size_t room, const char* what) {
  if (part.size() <= room) return part;
  const std::size_t kept = room > 0 ? room - 1 : 0;
  const std::string left = std::to_string(part.size() - std::max<std::size_t>(kept, 1));
  part.resize(kept);
  if (room > 0) part.push_back({"and " + left + " more " + what, Style::heading});
  return part;
}

std::string keys_in(int columns) {
  for (const char* keys : kKeys)
    if (display_width(keys) <= columns) return keys;
  return kKeys.back();
}

}  // namespace

std::vector<FrameLine> top_frame(const TopState& state, int rows, int columns) {
  const auto room = static_cast<std::size_t>(std::max(1, rows - 1));
  const std::string title = state.view ? state.view->title : "grapevine top";
  std::vector<FrameLine> frame = {{title + (state.paused ? "  (paused)" : ""), Style::title}};
  std::vector<FrameLine> body;
  if (state.view)
    body = state.shows_waits ? wait_part(*state.view, columns) : rank_part(state, columns);
  std::vector<FrameLine> problem;
  if (!state.problem.empty())
    for (std::string& line : wrapped(state.problem, columns))
      problem.push_back({std::move(line), Style::alarm});
  // The facts take what the ranks leave, but up to half of the window at least.
  const std::size_t fixed = 1 + problem.size();
  const std::size_t free = room > fixed ? room - fixed : 0;
  const std::size_t facts = std::max(free / 2, free > body.size() ? free - body.size() : 0);
  append(frame, fact_part(state, columns, facts));
  append(frame, problem);
  if (problem.empty() && frame.size() + body.size() < room) frame.push_back({""});
  append(frame, cut(std::move(body), room > frame.size() ? room - frame.size() : 0,
                    state.shows_waits ? "lines" : "ranks"));
  frame.resize(room);
  if (rows > 1) frame.push_back({keys_in(columns), Style::heading});
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
