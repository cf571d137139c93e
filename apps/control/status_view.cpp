#include "apps/control/status_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "apps/console/text/display_width.hpp"
#include "apps/console/text/figures.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostEvents = 5;
constexpr int kGap = 2;  // between columns
constexpr std::size_t kAwaitedWidth = 12;

double number(const ordered_json& from, const char* key) {
  const ordered_json& value = from.at(key);
  return value.is_null() ? kNothing : value.get<double>();
}

// Within its column: a list that is cut off would read as a shorter one.
std::string awaited_text(const ordered_json& waits) {
  std::set<std::int64_t> ranks;
  bool any = false;
  for (const ordered_json& one : waits)
    one.at("from").is_null() ? void(any = true)
                             : void(ranks.insert(one.at("from").get<std::int64_t>()));
  if (ranks.empty()) return any ? "any rank" : "";
  std::string text;
  for (const std::int64_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  text.insert(0, ranks.size() == 1 ? "rank " : "ranks ");
  return text.size() <= kAwaitedWidth
             ? text
             : format_count(static_cast<std::int64_t>(ranks.size())) + " ranks";
}

RankRow row_of(const ordered_json& rank) {
  RankRow row;
  row.rank = rank.at("rank").get<std::int64_t>();
  row.process = rank.at("process").get<std::int64_t>();
  row.state = rank.at("state").get<std::string>();
  row.steps = rank.at("steps").get<std::int64_t>();
  row.bytes = rank.at("bytes_sent").get<std::int64_t>();
  row.steps_per_s = number(rank, "steps_per_s");
  row.samples_per_s = number(rank, "samples_per_s");
  row.loss = number(rank, "loss");
  row.staleness = number(rank, "staleness");
  row.waits_s = number(rank, rank.at("silent_s").is_null() ? "waits_s" : "silent_s");
  row.waits_for = awaited_text(rank.at("waits_for"));
  row.bytes_per_s = kNothing;
  row.queued = kNothing;
  return row;
}

std::string length(double seconds) {
  return std::isfinite(seconds) ? format_duration(from_seconds(seconds)) : "-";
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return format_count(count) + " " + (count == 1 ? one : many);
}

std::vector<std::string> facts_of(const ordered_json& status) {
  const ordered_json& staleness = status.at("staleness");
  const ordered_json& contributions = status.at("contributions");
  std::vector<std::string> facts;
  std::string line = status.at("stage").get<std::string>();
  if (status.at("stopping").get<bool>()) line += ", stopping";
  line += " for " + length(number(status, "time_s"));
  line += ", " + counted(status.at("workers").get<std::int64_t>(), "worker", "workers");
  if (const auto servers = status.at("servers").get<std::int64_t>(); servers > 0)
    line += " and " + counted(servers, "server", "servers");
  line += " in " + counted(status.at("processes").get<std::int64_t>(), "process", "processes");
  line += fmt::format(", view {}", status.at("view").get<std::int64_t>());
  if (status.at("changes_members").get<bool>()) line += " (members are changing)";
  facts.push_back(line);
  facts.push_back("epoch " + format_number(number(status, "epochs_done"), 2) + " of " +
                  format_number(number(status, "epochs"), 2) + ", " +
                  format_rate(number(status, "samples_per_s")) + " samples/s, goodput " +
                  format_number(number(status, "goodput"), 3) + ", staleness " +
                  format_number(number(staleness, "mean"), 2) + ", at most " +
                  std::to_string(staleness.at("max").get<std::int64_t>()));
  facts.push_back(fmt::format(
      "gradients: {} produced, {} applied, {} pending, {} dropped, {} destroyed; sent {}",
      format_count(contributions.at("produced").get<std::int64_t>()),
      format_count(contributions.at("applied").get<std::int64_t>()),
      format_count(contributions.at("pending").get<std::int64_t>()),
      format_count(contributions.at("dropped").get<std::int64_t>()),
      format_count(contributions.at("destroyed").get<std::int64_t>()),
      format_bytes(status.at("bytes_sent").get<std::uint64_t>())));
  const ordered_json& checkpoint = status.at("checkpoint");
  facts.push_back(
      "checkpoint: " + (checkpoint.is_null() ? "none yet" : checkpoint.get<std::string>()) +
      (status.at("writes_checkpoint").get<bool>() ? ", one is being written" : ""));
  return facts;
}

// `queued`: by process, null where none of its ranks has answered.
void add_queued(StatusView& view, const ordered_json& queued) {
  std::int64_t most = 0;
  std::size_t where = 0;
  for (std::size_t process = 0; process < queued.size(); ++process) {
    if (queued[process].is_null()) continue;
    const auto bytes = queued[process].get<std::int64_t>();
    for (RankRow& row : view.ranks)
      if (row.process == static_cast<std::int64_t>(process))
        row.queued = static_cast<double>(bytes);
    if (bytes > most) {
      most = bytes;
      where = process;
    }
  }
  if (most > 0)
    view.facts.push_back(fmt::format("waits to be sent: at most {}, in process {}",
                                     format_bytes(static_cast<std::uint64_t>(most)), where));
}

std::vector<std::string> texts(const ordered_json& list) {
  std::vector<std::string> lines;
  for (const ordered_json& one : list)
    lines.push_back(without_control_characters(one.get<std::string>()));
  return lines;
}

StatusView parse(const ordered_json& status, const StatusView* before) {
  StatusView view;
  const ordered_json& run = status.at("run");
  view.title = without_control_characters(run.at("algorithm").get<std::string>() + ": " +
                                          run.at("model").get<std::string>() + " on " +
                                          run.at("data").get<std::string>());
  view.facts = facts_of(status);
  for (std::string& fact : view.facts) fact = without_control_characters(fact);
  for (const ordered_json& rank : status.at("ranks")) view.ranks.push_back(row_of(rank));
  add_queued(view, status.at("queued_bytes"));
  view.waits = texts(status.at("waits"));
  for (const ordered_json& event : status.at("events"))
    view.events.push_back(without_control_characters(
        fmt::format("{:>8}  {}: {}", length(number(event, "time_s")),
                    event.at("kind").get<std::string>(), event.at("text").get<std::string>())));
  view.stage = status.at("stage").get<std::string>();
  view.time_s = number(status, "time_s");
  if (before == nullptr || !(view.time_s > before->time_s)) return view;
  for (RankRow& row : view.ranks)
    for (const RankRow& old : before->ranks)
      if (old.rank == row.rank && row.bytes >= old.bytes)
        row.bytes_per_s =
            static_cast<double>(row.bytes - old.bytes) / (view.time_s - before->time_s);
  return view;
}

struct Column {
  const char* title;
  int width;
  bool left;
  int place;  // of the columns that a narrow terminal shows: the first ones
  std::string (*cell)(const RankRow&);
};

std::string rate_of_bytes(const RankRow& row) {
  return std::isfinite(row.bytes_per_s)
             ? format_bytes(static_cast<std::uint64_t>(std::llround(row.bytes_per_s)))
             : "-";
}

std::string queued_bytes(const RankRow& row) {
  return std::isfinite(row.queued) ? format_bytes(static_cast<std::uint64_t>(row.queued)) : "-";
}

// Names that are longer than the column, within it.
std::string state_in_table(const RankRow& row) {
  return row.state == "changes members" ? "changing" : row.state;
}

const std::vector<Column>& columns_of_ranks() {
  static const std::vector<Column> columns = {
      {"rank", 4, false, 0, [](const RankRow& row) { return std::to_string(row.rank); }},
      {"proc", 4, false, 8, [](const RankRow& row) { return std::to_string(row.process); }},
      {"state", 10, true, 1, state_in_table},
      {"step", 8, false, 2, [](const RankRow& row) { return format_count(row.steps); }},
      {"steps/s", 7, false, 5, [](const RankRow& row) { return format_rate(row.steps_per_s); }},
      {"stale", 5, false, 6, [](const RankRow& row) { return format_number(row.staleness, 1); }},
      {"sent", 7, false, 7,
       [](const RankRow& row) { return format_bytes(static_cast<std::uint64_t>(row.bytes)); }},
      {"sent/s", 7, false, 7, rate_of_bytes},
      {"queued", 7, false, 9, queued_bytes},
      {"wait", 6, false, 3, [](const RankRow& row) { return length(row.waits_s); }},
      {"for", kAwaitedWidth, true, 4, [](const RankRow& row) { return row.waits_for; }}};
  return columns;
}

// In the order of the table: those that fit whole, by their places. A column that is cut off would
// show other figures.
std::vector<const Column*> shown_columns(bool rates, int width) {
  std::vector<const Column*> columns;
  for (const Column& column : columns_of_ranks())
    if (column.title != std::string(rates ? "sent" : "sent/s")) columns.push_back(&column);
  std::vector<const Column*> by_place = columns;
  std::sort(by_place.begin(), by_place.end(),
            [](const Column* one, const Column* other) { return one->place < other->place; });
  std::set<const Column*> fit;
  int used = -kGap;
  for (const Column* column : by_place) {
    if (used + kGap + column->width > width) continue;
    used += kGap + column->width;
    fit.insert(column);
  }
  columns.erase(std::remove_if(columns.begin(), columns.end(),
                               [&](const Column* column) { return fit.count(column) == 0; }),
                columns.end());
  return columns;
}

std::string padded(const std::string& text, int width, bool left) {
  const std::string cut = truncate_to_width(text, width);
  const auto missing = static_cast<std::size_t>(std::max(0, width - display_width(cut)));
  return left ? cut + std::string(missing, ' ') : std::string(missing, ' ') + cut;
}

}  // namespace

Expected<StatusView> view_of(const ordered_json& status, const StatusView* before) {
  try {
    return parse(status, before);
  } catch (const nlohmann::json::exception&) {
    return Error{Errc::protocol,
                 "the answer is no status of a run of this version: use the same version of "
                 "grapevine as the run"};
  }
}

void sort_rows(std::vector<RankRow>& rows, RowOrder order) {
  const auto key = [order](const RankRow& row) -> double {
    const auto known = [](double value) { return std::isfinite(value) ? value : -1.0; };
    switch (order) {
      case RowOrder::rank:
        return 0;
      case RowOrder::step:
        return static_cast<double>(row.steps);
      case RowOrder::rate:
        return known(row.steps_per_s);
      case RowOrder::staleness:
        return known(row.staleness);
      case RowOrder::wait:
        return known(row.waits_s);
      case RowOrder::bytes:
        return static_cast<double>(row.bytes);
    }
    return 0;
  };
  std::stable_sort(rows.begin(), rows.end(), [&key](const RankRow& a, const RankRow& b) {
    return key(a) != key(b) ? key(a) > key(b) : a.rank < b.rank;
  });
}

std::vector<std::string> rank_lines(const std::vector<RankRow>& rows, int columns) {
  std::vector<std::string> lines(rows.size() + 1);
  const bool rates = std::any_of(rows.begin(), rows.end(),
                                 [](const RankRow& row) { return std::isfinite(row.bytes_per_s); });
  for (const Column* column : shown_columns(rates, columns)) {
    lines[0] += padded(column->title, column->width, column->left) + std::string(kGap, ' ');
    for (std::size_t i = 0; i < rows.size(); ++i)
      lines[i + 1] +=
          padded(column->cell(rows[i]), column->width, column->left) + std::string(kGap, ' ');
  }
  for (std::string& line : lines) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    line = truncate_to_width(line, columns);
  }
  return lines;
}

std::string text_of(const StatusView& view, int columns) {
  std::string text = view.title + "\n";
  for (const std::string& fact : view.facts) text += fact + "\n";
  text += "\n";
  for (const std::string& line : rank_lines(view.ranks, columns)) text += line + "\n";
  if (!view.waits.empty()) text += "\nwaits\n";
  for (const std::string& wait : view.waits) text += "  " + wait + "\n";
  if (!view.events.empty()) text += "\nevents\n";
  const std::size_t first = view.events.size() - std::min(view.events.size(), kMostEvents);
  for (std::size_t i = first; i < view.events.size(); ++i) text += view.events[i] + "\n";
  return text;
}

}  // namespace grapevine
