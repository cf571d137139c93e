#include "apps/trace/trace_csv.hpp"

#include <iterator>
#include <ostream>
#include <utility>

#include <fmt/compile.h>
#include <fmt/format.h>

namespace grapevine {
namespace {

// All nine decimals; a double would take ten times as long to print.
std::string seconds_cell(std::int64_t ns) {
  const bool negative = ns < 0;
  const auto whole = negative ? -static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format(FMT_COMPILE("{}{}.{:09}"), negative ? "-" : "", whole / 1000000000,
                     whole % 1000000000);
}

std::string rank_cell(Rank rank) { return rank < 0 ? "" : std::to_string(rank); }

}  // namespace

Expected<TraceCsv> TraceCsv::create(const std::string& folder, std::int32_t ranks) {
  if (auto made = ensure_writable_directory(folder); !made) return made.error();
  auto applied = AtomicFile::create(folder + "/applied.csv");
  if (!applied) return applied.error();
  auto waits = AtomicFile::create(folder + "/waits.csv");
  if (!waits) return waits.error();
  auto edges = AtomicFile::create(folder + "/edges.csv");
  if (!edges) return edges.error();
  return TraceCsv(*std::move(applied), *std::move(waits), *std::move(edges), ranks);
}

TraceCsv::TraceCsv(AtomicFile applied, AtomicFile waits, AtomicFile edges, std::int32_t ranks)
    : applied_(std::move(applied)),
      waits_(std::move(waits)),
      edges_(std::move(edges)),
      tracker_(ranks),
      figures_(ranks) {
  applied_.stream() << kAppliedColumns;
  waits_.stream() << kWaitColumns;
  edges_.stream() << kEdgeColumns;
}

void TraceCsv::add(const TraceRecord& record) {
  figures_.add(record);
  if (const auto wait = tracker_.add(record)) add_wait(*wait);
  if (record.kind == EventKind::sent) messages_.sent(record);
  if (record.kind == EventKind::received) messages_.received(record);
  if (record.kind == EventKind::resumed) messages_.resumed(record);
  if (record.kind == EventKind::applied) add_applied(record);
}

void TraceCsv::add_applied(const TraceRecord& record) {
  std::string path, latency;
  if (record.peer < 0) {
    path = "collective";
  } else if (const auto message = messages_.applied(record)) {
    path = name_of(message->payload);
    if (message->received_ns >= 0 && !message->of_checkpoint)
      latency = seconds_cell(message->latency_ns());
  }
  applied_.stream() << fmt::format(FMT_COMPILE("{},{},{},{},{},{},{},{},{},{},{}\n"),
                                   seconds_cell(record.time_ns), record.rank, record.step,
                                   rank_cell(record.peer), record.origin, record.origin_step,
                                   record.version, record.staleness, record.bytes, path, latency);
}

void TraceCsv::add_wait(const TracedWait& wait) {
  waits_.stream() << fmt::format("{},{},{},{},{},{},{},{}\n", wait.rank, wait.step,
                                 seconds_cell(wait.begin_ns), seconds_cell(wait.end_ns),
                                 seconds_cell(wait.duration_ns()), rank_cell(wait.awaited),
                                 rank_cell(wait.released_by), name_of(wait.payload));
}

void TraceCsv::write_edges() {
  for (const EdgeFigures& edge : figures_.edges()) {
    const bool measured = edge.latency_ns.count() > 0;
    const auto latency = [&](double q) {
      return measured ? seconds_cell(static_cast<std::int64_t>(edge.latency_ns.quantile(q))) : "";
    };
    const std::string staleness =
        edge.applied > 0 ? fmt::format("{}", edge.staleness_sum / static_cast<double>(edge.applied))
                         : "";
    edges_.stream() << fmt::format("{},{},{},{},{},{},{}\n", edge.from, edge.to, edge.messages,
                                   edge.bytes, staleness, latency(0.5), latency(0.99));
  }
}

Expected<void> TraceCsv::commit() {
  write_edges();
  for (AtomicFile* file : {&applied_, &waits_, &edges_})
    if (auto committed = file->commit(); !committed) return committed;
  return {};
}

}  // namespace grapevine
