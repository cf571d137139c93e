#include "apps/trace/figures_report.hpp"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "actors/run/control/live_settings.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownEdges = 16;
constexpr std::size_t kReportedRanks = 64;
constexpr std::size_t kShownStaleness = 12;  // lines of the histogram
constexpr int kHistogramColumns = 40;

double edge_staleness(const EdgeFigures& edge) {
  return edge.staleness_sum / static_cast<double>(edge.applied);
}

double p99_latency_s(const EdgeFigures& edge) { return edge.latency_ns.quantile(0.99) / 1e9; }

// ---- JSON ----

ordered_json staleness_json(const StalenessCounts& counts) {
  const StalenessFigures figures = figures_of(counts);
  ordered_json histogram = ordered_json::object();
  for (const auto& [value, count] : counts) histogram[std::to_string(value)] = count;
  return {{"mean", figures.mean},
          {"p50", figures.p50},
          {"p99", figures.p99},
          {"max", figures.max},
          {"histogram", std::move(histogram)}};
}

ordered_json contributions_json(const ContributionFigures& c) {
  return {{"produced", c.produced},
          {"applied", c.applied},
          {"pending", c.pending},
          {"dropped", c.dropped},
          {"destroyed", c.destroyed}};
}

ordered_json edges_json(const TraceFigures& figures) {
  ordered_json list = ordered_json::array();
  for (const EdgeFigures& edge : figures.edges()) {
    const bool measured = edge.latency_ns.count() > 0;
    list.push_back(
        {{"from", edge.from},
         {"to", edge.to},
         {"messages", edge.messages},
         {"bytes", edge.bytes},
         {"mean_staleness", edge.applied > 0 ? ordered_json(edge_staleness(edge)) : nullptr},
         {"p99_latency_s", measured ? ordered_json(p99_latency_s(edge)) : nullptr}});
  }
  return list;
}

ordered_json ranks_json(const MergedTrace& trace, const TraceFigures& figures) {
  ordered_json list = ordered_json::array();
  const std::vector<TracedRank> ranks = figures.ranks();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const TracedRank& of = ranks[rank];
    const bool serves = static_cast<std::int32_t>(rank) >= trace.workers();
    list.push_back({{"rank", rank},
                    {"role", serves ? "server" : "worker"},
                    {"process", trace.process_of(static_cast<Rank>(rank))},
                    {"steps", of.steps},
                    {"messages", of.messages},
                    {"waited_s", static_cast<double>(of.waited_ns) / 1e9},
                    {"staleness", staleness_json(of.staleness)},
                    {"contributions", contributions_json(of.contributions)}});
  }
  return list;
}

ordered_json changes_json(const MergedTrace& trace) {
  ordered_json list = ordered_json::array();
  for (const SettingsChange& change : trace.changes())
    list.push_back(
        {{"time_s", static_cast<double>(change.time_ns) / 1e9}, {"settings", change.settings}});
  return list;
}

ordered_json kinds_json(const TraceFigures& figures) {
  ordered_json object = ordered_json::object();
  for (const auto& [kind, of] : figures.kinds())
    object[kind == PayloadKind::none ? "unknown" : name_of(kind)] = {{"messages", of.messages},
                                                                     {"bytes", of.bytes}};
  return object;
}

// ---- for people ----

std::string latency_text(std::int64_t ns) { return format_duration(Duration(ns)); }

std::string of_several(std::int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

// Eighths of a column, where the terminal has them.
std::string histogram_bar(double share, const TerminalStyle& style) {
  const int eighths = static_cast<int>(share * kHistogramColumns * 8 + 0.5);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += style.unicode ? "█" : "#";
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (style.unicode) bar += kParts[eighths % 8];
  return bar;
}

struct HistogramLine {
  std::string label;
  std::int64_t count = 0;
};

// A line for each value; where there are too many of them, for ranges of equal width.
std::vector<HistogramLine> histogram_lines(const StalenessCounts& counts) {
  const std::int64_t least = counts.begin()->first, most = counts.rbegin()->first;
  const auto lines = static_cast<std::int64_t>(kShownStaleness);
  const std::int64_t width = (most - least) / lines + 1;
  std::vector<HistogramLine> result;
  for (std::int64_t first = least; first <= most; first += width) {
    HistogramLine line;
    line.label = width == 1 ? std::to_string(first)
                            : fmt::format("{}-{}", first, std::min(most, first + width - 1));
    for (auto it = counts.lower_bound(first); it != counts.end() && it->first < first + width; ++it)
      line.count += it->second;
    result.push_back(std::move(line));
  }
  return result;
}

void print_staleness(const StalenessCounts& counts, const TerminalStyle& style, std::ostream& out) {
  out << "\nStaleness of applied updates\n";
  if (counts.empty()) {
    out << "none applied\n";
    return;
  }
  const StalenessFigures figures = figures_of(counts);
  out << fmt::format("mean {:.3f}, p50 {}, p99 {}, max {}\n", figures.mean, figures.p50,
                     figures.p99, figures.max);
  const std::vector<HistogramLine> lines = histogram_lines(counts);
  std::int64_t total = 0, most = 0;
  std::size_t label_width = 0, count_width = 0;
  for (const HistogramLine& line : lines) {
    total += line.count;
    most = std::max(most, line.count);
    label_width = std::max(label_width, line.label.size());
    count_width = std::max(count_width, format_count(line.count).size());
  }
  for (const HistogramLine& line : lines) {
    const auto count = static_cast<double>(line.count);
    out << fmt::format("{:>{}}  {:>{}}  {:5.1f}%  {}\n", line.label, label_width,
                       format_count(line.count), count_width,
                       100 * count / static_cast<double>(total),
                       histogram_bar(count / static_cast<double>(most), style));
  }
}

void print_ranks(const MergedTrace& trace, const TraceFigures& figures, std::ostream& out) {
  Table table({"rank", "role", "steps", "messages", "waited", "staleness mean", "p99", "pending"});
  const std::vector<TracedRank> ranks = figures.ranks();
  for (std::size_t rank = 0; rank < std::min(kReportedRanks, ranks.size()); ++rank) {
    const TracedRank& of = ranks[rank];
    const StalenessFigures staleness = figures_of(of.staleness);
    const bool lost = figures.lost().count(static_cast<Rank>(rank)) > 0;
    const bool serves = static_cast<std::int32_t>(rank) >= trace.workers();
    const bool any = !of.staleness.empty();
    table.add_row({std::to_string(rank),
                   lost     ? "lost"
                   : serves ? "server"
                            : "worker",
                   serves ? "-" : format_count(of.steps), format_count(of.messages),
                   latency_text(of.waited_ns), any ? format_number(staleness.mean, 2) : "-",
                   any ? std::to_string(staleness.p99) : "-",
                   serves ? "-" : format_count(of.contributions.pending)});
  }
  out << "\nRanks\n" << table;
  if (ranks.size() > kReportedRanks)
    out << "and "
        << of_several(static_cast<std::int64_t>(ranks.size() - kReportedRanks), "more rank")
        << " (--json has all)\n";
}

void print_changes(const MergedTrace& trace, std::ostream& out) {
  if (trace.changes().empty()) return;
  out << "\nChanges of settings\n";
  for (const SettingsChange& change : trace.changes())
    out << fmt::format("{:>9.3f}s  {}\n", static_cast<double>(change.time_ns) / 1e9,
                       without_control_characters(settings_text(change.settings)));
}

void print_edges(const TraceFigures& figures, std::ostream& out) {
  std::vector<EdgeFigures> edges = figures.edges();
  if (edges.empty()) return;
  std::stable_sort(edges.begin(), edges.end(),
                   [](const EdgeFigures& a, const EdgeFigures& b) { return a.bytes > b.bytes; });
  Table table({"from", "to", "messages", "bytes", "staleness", "latency p50", "latency p99"});
  std::uint64_t shown_bytes = 0;
  const std::size_t shown = std::min(kShownEdges, edges.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const EdgeFigures& edge = edges[i];
    const auto latency = [&edge](double q) {
      const bool measured = edge.latency_ns.count() > 0;
      return measured ? latency_text(static_cast<std::int64_t>(edge.latency_ns.quantile(q))) : "-";
    };
    shown_bytes += edge.bytes;
    table.add_row({std::to_string(edge.from), std::to_string(edge.to), format_count(edge.messages),
                   format_bytes(edge.bytes),
                   edge.applied > 0 ? format_number(edge_staleness(edge), 2) : "-", latency(0.5),
                   latency(0.99)});
  }
  out << "\nEdges, by bytes\n" << table;
  if (edges.size() > shown)
    out << fmt::format("and {} with {} (--json and --csv have all)\n",
                       of_several(static_cast<std::int64_t>(edges.size() - shown), "more edge"),
                       format_bytes(figures.bytes() - shown_bytes));
}

void print_run_figures(const MergedTrace& trace, const TraceFigures& figures, std::ostream& out) {
  const auto& keys = trace.header(0).wiring;
  const auto exchange = keys.find("exchange");
  std::string title =
      exchange == keys.end() ? "" : without_control_characters(exchange->second) + ", ";
  title += of_several(trace.workers(), "worker");
  if (trace.servers() > 0) title += ", " + of_several(trace.servers(), "server");
  title += trace.processes() == 1 ? " in one process"
                                  : fmt::format(" in {} processes", trace.processes());
  out << title << ", " << latency_text(figures.trained_ns());
  if (figures.paused_ns() > 0)
    out << " of training, resumed after pauses of " << latency_text(figures.paused_ns())
        << " in all";
  out << "\n\n";
  std::string kinds;
  for (const auto& [kind, of] : figures.kinds())
    kinds += (kinds.empty() ? ": " : ", ") + format_count(of.messages) + " " +
             (kind == PayloadKind::none ? "of unknown kind" : name_of(kind));
  const ContributionFigures c = figures.contributions();
  out << fmt::format("messages       {} with {}{}\n", format_count(figures.messages()),
                     format_bytes(figures.bytes()), kinds)
      << fmt::format("updates        {} applied\n", format_count(figures.applied()))
      << fmt::format(
             "contributions  {} produced: {} applied, {} pending, {} dropped, {} destroyed\n",
             format_count(c.produced), format_count(c.applied), format_count(c.pending),
             format_count(c.dropped), format_count(c.destroyed));
}

}  // namespace

ordered_json figures_json(const MergedTrace& trace, const TraceFigures& figures) {
  ordered_json object;
  object["seconds"] = static_cast<double>(figures.trained_ns()) / 1e9;
  object["paused_seconds"] = static_cast<double>(figures.paused_ns()) / 1e9;
  object["messages"] = figures.messages();
  object["bytes"] = figures.bytes();
  object["applied"] = figures.applied();
  object["staleness"] = staleness_json(figures.staleness());
  object["contributions"] = contributions_json(figures.contributions());
  object["kinds"] = kinds_json(figures);
  object["ranks"] = ranks_json(trace, figures);
  object["edges"] = edges_json(figures);
  object["changes"] = changes_json(trace);
  object["missing"] = trace.missing();
  return object;
}

void print_figures(const MergedTrace& trace, const TraceFigures& figures,
                   const TerminalStyle& style, std::ostream& out) {
  print_run_figures(trace, figures, out);
  print_changes(trace, out);
  print_staleness(figures.staleness(), style, out);
  print_ranks(trace, figures, out);
  print_edges(figures, out);
}

}  // namespace grapevine
