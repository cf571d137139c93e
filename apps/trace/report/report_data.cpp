#include "apps/trace/report/report_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "apps/trace/report/page_curves.hpp"
#include "apps/trace/report/run_facts.hpp"
#include "messages/check.hpp"
#include "messages/text/parse_number.hpp"
#include "messages/time.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostBars = 40;
constexpr std::size_t kMostEdges = 200, kMostRanks = 512, kMostCulprits = 100, kMostChanges = 50;
constexpr std::size_t kMostChainBytes = std::size_t{64} << 10;
constexpr std::size_t kLeastBins = 40;   // of the heat map, if the run is long enough
constexpr std::int64_t kMostSide = 256;  // of the matrix

// Four digits are more than a drawing shows, and half of the page's size.
ordered_json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (std::abs(value) < 1e15 && value == std::floor(value) && std::abs(value) < 10000)
    return static_cast<std::int64_t>(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::strtod(text, nullptr);
}

// With the digits that a step or a time of a long run has.
ordered_json rounded_finely(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", value);
  return std::strtod(text, nullptr);
}

double seconds_of_ns(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

double quotient(double part, double whole) { return whole > 0 ? part / whole : std::nan(""); }

std::optional<double> number_of(const ordered_json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto entry = object.find(key);
  if (entry == object.end() || !entry->is_number()) return std::nullopt;
  return entry->get<double>();
}

ordered_json entry_of(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto entry = object.find(key);
  return entry == object.end() ? ordered_json(nullptr) : *entry;
}

ordered_json curve(const std::vector<PagePoint>& points) {
  ordered_json list = ordered_json::array();
  for (const PagePoint& p : points)
    list.push_back({rounded_finely(p.step), rounded_finely(p.time_s), rounded(p.loss),
                    rounded(p.lowest_loss), rounded(p.highest_loss), rounded(p.top1)});
  return list;
}

ordered_json curves_of(const std::string& run) {
  const PageCurves curves = read_page_curves((std::filesystem::path(run) / "metrics.csv").string());
  ordered_json validations = ordered_json::array();
  for (const ValidationPoint& v : curves.validations)
    validations.push_back(
        {rounded_finely(v.step), rounded_finely(v.time_s), rounded(v.loss), rounded(v.top1)});
  return {{"by_step", curve(curves.by_step)},    {"by_time", curve(curves.by_time)},
          {"validations", validations},          {"rows", curves.rows},
          {"damaged_rows", curves.damaged_rows}, {"problem", curves.problem}};
}

// Where steps take longer than a bin, wider ones: gaps between the steps of a rank hide the figure.
HeatMap legible(HeatMap map) {
  const auto share_applied = [&map] {
    std::size_t cells = 0;
    for (std::size_t row = 0; row < map.rows(); ++row)
      for (std::size_t bin = 0; bin < map.bins(); ++bin)
        if (map.cell(row, bin).applied > 0) ++cells;
    return static_cast<double>(cells) / static_cast<double>(map.rows() * map.bins());
  };
  while (map.bins() >= 2 * kLeastBins && share_applied() < 0.9) map.merge_bins();
  return map;
}

ordered_json heat_of(const ReportCollector& collector) {
  const HeatMap map = legible(collector.heat_map());
  ordered_json staleness = ordered_json::array(), waited = ordered_json::array();
  for (std::size_t row = 0; row < map.rows(); ++row) {
    const std::int64_t first = static_cast<std::int64_t>(row) * map.ranks_per_row();
    const std::int64_t ranks = std::min<std::int64_t>(map.ranks_per_row(), map.ranks() - first);
    for (std::size_t bin = 0; bin < map.bins(); ++bin) {
      const HeatMap::Cell& cell = map.cell(row, bin);
      const std::int64_t begin = static_cast<std::int64_t>(bin) * map.bin_width_ns();
      const std::int64_t width = std::min(map.bin_width_ns(), collector.last_ns() - begin);
      staleness.push_back(rounded(quotient(cell.staleness, static_cast<double>(cell.applied))));
      waited.push_back(rounded(std::min(
          1.0, quotient(static_cast<double>(cell.waited_ns), static_cast<double>(width * ranks)))));
    }
  }
  return {{"ranks", map.ranks()},
          {"ranks_per_row", map.ranks_per_row()},
          {"rows", map.rows()},
          {"bins", map.bins()},
          {"bin_s", seconds_of_ns(map.bin_width_ns())},
          {"end_s", seconds_of_ns(collector.last_ns())},
          {"paused_s", seconds_of_ns(collector.clock().paused_ns())},
          {"staleness", staleness},
          {"waited", waited}};
}

ordered_json ranks_of(const ReportCollector& collector) {
  std::vector<std::size_t> order(collector.ranks().size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (order.size() > kMostRanks) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return collector.ranks()[a].waited_ns > collector.ranks()[b].waited_ns;
    });
    order.resize(kMostRanks);
  }
  ordered_json list = ordered_json::array();
  for (const std::size_t i : order) {
    const RankTimes& rank = collector.ranks()[i];
    list.push_back({i, rank.steps, rank.applied,
                    rounded(quotient(rank.staleness, static_cast<double>(rank.applied))),
                    rounded(seconds_of_ns(rank.computed_ns)),
                    rounded(seconds_of_ns(rank.waited_ns)),
                    rounded(seconds_of_ns(rank.data_waited_ns))});
  }
  return list;
}

const char* kind_name(StepSegment::Kind kind) {
  switch (kind) {
    case StepSegment::Kind::compute:
      return "compute";
    case StepSegment::Kind::data:
      return "data";
    case StepSegment::Kind::wait:
      return "wait";
  }
  return "";
}

ordered_json slow_steps_of(const ReportCollector& collector) {
  ordered_json list = ordered_json::array();
  for (const StepLane& lane : collector.slowest_steps()) {
    ordered_json segments = ordered_json::array();
    for (const StepSegment& s : lane.segments)
      segments.push_back({kind_name(s.kind), rounded(seconds_of_ns(s.begin_ns - lane.begin_ns)),
                          rounded(seconds_of_ns(s.end_ns - lane.begin_ns)), s.peer});
    list.push_back({{"rank", lane.rank},
                    {"step", lane.step},
                    {"begin_s", rounded_finely(seconds_of_ns(lane.begin_ns))},
                    {"seconds", rounded(seconds_of_ns(lane.duration_ns()))},
                    {"finished", lane.finished},
                    {"segments", segments},
                    {"left_out", lane.left_out}});
  }
  return list;
}

// Bytes from rank to rank; of neighbouring ranks together where there are more than kMostSide.
ordered_json matrix_of(const ordered_json& edges, std::int64_t ranks) {
  const std::int64_t per_cell = (ranks + kMostSide - 1) / kMostSide;
  std::map<std::pair<std::int64_t, std::int64_t>, double> cells;
  for (const ordered_json& edge : edges) {
    const auto from = number_of(edge, "from"), to = number_of(edge, "to");
    const auto bytes = number_of(edge, "bytes");
    if (!from || !to || !bytes) continue;
    const auto in_run = [ranks](double rank) {
      return rank >= 0 && rank < static_cast<double>(ranks);
    };
    if (!in_run(*from) || !in_run(*to)) continue;
    cells[{static_cast<std::int64_t>(*from) / per_cell,
           static_cast<std::int64_t>(*to) / per_cell}] += *bytes;
  }
  ordered_json list = ordered_json::array();
  for (const auto& [at, bytes] : cells) list.push_back({at.first, at.second, rounded(bytes)});
  return {
      {"side", (ranks + per_cell - 1) / per_cell}, {"ranks_per_cell", per_cell}, {"cells", list}};
}

// Those with the most bytes.
ordered_json greatest_edges(const ordered_json& edges) {
  std::vector<std::pair<double, const ordered_json*>> order;
  for (const ordered_json& edge : edges)
    order.emplace_back(number_of(edge, "bytes").value_or(0), &edge);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  order.resize(std::min(order.size(), kMostEdges));
  ordered_json list = ordered_json::array();
  for (const auto& [bytes, edge] : order) {
    ordered_json row = ordered_json::array();
    for (const char* key : {"from", "to", "messages", "bytes", "mean_staleness", "p99_latency_s"})
      row.push_back(entry_of(*edge, key));
    list.push_back(row);
  }
  return list;
}

ordered_json first_of(const ordered_json& list, std::size_t most) {
  ordered_json first = ordered_json::array();
  for (const ordered_json& entry : list)
    if (first.size() < most) first.push_back(entry);
  return first;
}

// At times of training, as all times of the page.
ordered_json changes_of(const ordered_json& figures, const TrainingClock& clock) {
  ordered_json list = first_of(entry_of(figures, "changes"), kMostChanges);
  for (ordered_json& change : list)
    if (const auto time_s = number_of(change, "time_s"))
      change["time_s"] = seconds_of_ns(clock.at(from_seconds(*time_s).count()));
  return list;
}

ordered_json lines_of(const std::vector<std::string>& lines) {
  ordered_json list = ordered_json::array();
  std::size_t bytes = 0;
  for (const std::string& line : lines) {
    bytes += line.size() + 1;
    if (bytes > kMostChainBytes) {
      list.push_back("(the rest is left out)");
      break;
    }
    list.push_back(line);
  }
  return list;
}

std::string name_of_run(const std::string& run) {
  std::error_code ignored;
  const auto path = std::filesystem::absolute(run, ignored).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  return name.empty() ? run : name;
}

std::map<std::int64_t, double> counts_of(const ordered_json& histogram) {
  std::map<std::int64_t, double> counts;
  if (!histogram.is_object()) return counts;
  for (const auto& [key, value] : histogram.items()) {
    const auto number = number_in<std::int64_t>(key);
    if (number && value.is_number()) counts[*number] += value.get<double>();
  }
  return counts;
}

}  // namespace

ordered_json histogram_bars(const ordered_json& histogram) {
  const std::map<std::int64_t, double> counts = counts_of(histogram);
  ordered_json bars = ordered_json::array();
  if (counts.empty()) return bars;
  const std::int64_t first = counts.begin()->first, last = counts.rbegin()->first;
  double all = 0;
  for (const auto& [value, count] : counts) all += count;
  // Up to here the bars are of equal width.
  std::int64_t end = last;
  if (last - first >= kMostBars) {
    double seen = 0;
    for (auto it = counts.begin(); it != counts.end() && seen < 0.995 * all; ++it) {
      end = it->first;
      seen += it->second;
    }
  }
  const std::int64_t most = end < last ? kMostBars - 1 : kMostBars;
  const std::int64_t width = (end - first) / most + 1;
  std::map<std::int64_t, double> sums;  // by the first value of a bar
  for (std::int64_t from = first; from <= end; from += width) sums[from] = 0;
  const std::int64_t rest = sums.rbegin()->first + width;
  for (const auto& [value, count] : counts)
    sums[value < rest ? first + (value - first) / width * width : rest] += count;
  for (const auto& [from, count] : sums)
    bars.push_back({from, from == rest ? last : std::min(last, from + width - 1), count});
  return bars;
}

ordered_json report_data(const ReportInputs& inputs) {
  GRAPEVINE_CHECK(inputs.collector != nullptr, "a report needs its collector");
  const ReportCollector& collector = *inputs.collector;
  const RunFacts facts = read_run_facts(inputs.run);
  ordered_json missing = facts.missing;
  for (const ordered_json& sentence : entry_of(inputs.figures, "missing"))
    missing.push_back(sentence);
  const ordered_json edges = entry_of(inputs.figures, "edges");
  const ordered_json staleness = entry_of(inputs.figures, "staleness");
  ordered_json stale = ordered_json::object();
  for (const char* key : {"mean", "p50", "p99", "max"}) stale[key] = entry_of(staleness, key);
  stale["bars"] = histogram_bars(entry_of(staleness, "histogram"));

  ordered_json data;
  data["run"] = name_of_run(inputs.run);
  data["facts"] = facts.values;
  data["ended"] = facts.ended;
  data["missing"] = missing;
  data["workers"] = inputs.workers;
  data["servers"] = inputs.servers;
  data["processes"] = inputs.processes;
  data["records"] = collector.records();
  data["messages"] = entry_of(inputs.figures, "messages");
  data["bytes"] = entry_of(inputs.figures, "bytes");
  data["applied"] = entry_of(inputs.figures, "applied");
  data["changes"] = changes_of(inputs.figures, collector.clock());
  data["curves"] = curves_of(inputs.run);
  data["staleness"] = stale;
  data["heat"] = heat_of(collector);
  data["ranks"] = ranks_of(collector);
  data["matrix"] = matrix_of(edges, collector.heat_map().ranks());
  data["edges"] = greatest_edges(edges);
  data["edge_count"] = edges.size();
  data["slow_steps"] = slow_steps_of(collector);
  data["ledger"] = entry_of(inputs.figures, "contributions");
  data["culprits"] = first_of(inputs.culprits, kMostCulprits);
  data["chains"] = lines_of(inputs.chains);
  return data;
}

}  // namespace grapevine
