#include "apps/trace/perfetto/timeline.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "actors/run/control/live_settings.hpp"

namespace grapevine {
namespace {

// Numbers of processes, threads and counters, all different.
class TimelineIds {
 public:
  explicit TimelineIds(const MergedTrace& trace) : processes_(trace.processes()) {}

  // From 1: 0 is the idle process. The last one stands for a process that has left no trace.
  std::int32_t pid(std::int32_t process) const { return (process < 0 ? processes_ : process) + 1; }
  std::int64_t process(std::int32_t process) const { return processes_ + 2 + process; }
  std::int64_t of_rank(Rank rank, int which) const {
    return 2 * std::int64_t{processes_} + 2 + std::int64_t{rank} * kTracksOfRank + which;
  }

 private:
  static constexpr int kTracksOfRank = 6;
  std::int32_t processes_;
};

// "rank 2", "ranks 0-3, 8".
std::string ranks_in_words(const std::vector<Rank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += '-' + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string process_name(const MergedTrace& trace, std::int32_t process,
                         const std::vector<Rank>& ranks) {
  const std::string of_ranks = ranks.empty() ? "no ranks" : ranks_in_words(ranks);
  if (process < 0) return "unknown process, " + of_ranks;
  const TraceHeader& header = trace.header(process);
  return fmt::format("{} pid {}, {}", header.host, header.pid, of_ranks);
}

}  // namespace

Timeline::Timeline(const MergedTrace& trace, TraceSurvey& survey, TimelineSink& sink)
    : survey_(survey), sink_(sink) {
  describe_processes(trace);
  ranks_.reserve(static_cast<std::size_t>(trace.ranks()));
  for (Rank rank = 0; rank < trace.ranks(); ++rank) add_rank(trace, rank);
  add_process_events(trace);
}

void Timeline::describe_processes(const MergedTrace& trace) {
  std::map<std::int32_t, std::vector<Rank>> ranks_of;
  for (Rank rank = 0; rank < trace.ranks(); ++rank)
    ranks_of[trace.process_of(rank)].push_back(rank);
  for (const ProcessPause& pause : trace.pauses()) ranks_of[pause.process];
  if (!trace.changes().empty()) ranks_of[0];
  for (const auto& [process, ranks] : ranks_of)
    sink_.describe(
        TimelineProcess{TimelineIds(trace).pid(process), process_name(trace, process, ranks)});
}

void Timeline::add_rank(const MergedTrace& trace, Rank rank) {
  using Kind = TimelineTrackName::Kind;
  const TimelineIds ids(trace);
  int which = 0;
  const auto track = [&](Kind kind, const char* what) {
    return TimelineTrack(sink_, {ids.of_rank(rank, which++), ids.pid(trace.process_of(rank)), kind,
                                 fmt::format("rank {} {}", rank, what)});
  };
  TimelineTrack peer = track(Kind::thread, rank < trace.workers() ? "peer" : "server");
  TimelineTrack worker = track(Kind::thread, "worker");
  TimelineTrack exchange = track(Kind::thread, "exchange");
  TimelineTrack staleness = track(Kind::count, "staleness");
  TimelineTrack bytes_sent = track(Kind::bytes, "bytes sent");
  TimelineTrack in_flight = track(Kind::count, "messages in flight to it");
  ranks_.push_back({PeerTrack(std::move(peer), survey_.steps(rank), trace.sampled() > 1),
                    WorkerTrack(std::move(worker)),
                    ExchangeTrack(std::move(exchange), survey_.operations(rank)),
                    std::move(staleness), std::move(bytes_sent), std::move(in_flight)});
}

// What happened to whole processes: pauses, and in process 0 changes of the settings.
void Timeline::add_process_events(const MergedTrace& trace) {
  struct ProcessEvent {
    std::int32_t process;
    std::int64_t begin_ns;
    std::optional<std::int64_t> end_ns;  // of a pause
    std::string name;
  };
  std::vector<ProcessEvent> events;
  for (const ProcessPause& of : trace.pauses())
    events.push_back({of.process, of.pause.begin_ns, of.pause.end_ns, "paused"});
  for (const SettingsChange& change : trace.changes())
    events.push_back({0, change.time_ns, std::nullopt, settings_text(change.settings)});
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  const TimelineIds ids(trace);
  std::map<std::int32_t, TimelineTrack> tracks;
  for (const ProcessEvent& of_process : events) {
    const std::int32_t process = of_process.process;
    const TimelineTrackName name{ids.process(process), ids.pid(process),
                                 TimelineTrackName::Kind::thread, "process"};
    TimelineTrack& track = tracks.try_emplace(process, sink_, name).first->second;
    TimelineEvent event;
    event.time_ns = of_process.begin_ns;
    event.category = TimelineCategory::run;
    event.name = of_process.name;
    event.recurs = of_process.end_ns.has_value();
    if (!of_process.end_ns) {
      track.instant(event);
      continue;
    }
    track.begin(event);
    track.end(*of_process.end_ns);
  }
}

void Timeline::add(const TraceRecord& record) {
  const FlowRole flow = survey_.flows().use(record);
  RankTimeline& rank = of(record.rank);
  last_ns_ = record.time_ns;
  rank.peer.add(record, flow);
  rank.worker.add(record);
  rank.exchange.add(record);
  count(record, flow);
}

// A message without a receipt does not count as in flight: it would be so for ever.
void Timeline::count(const TraceRecord& record, FlowRole flow) {
  RankTimeline& rank = of(record.rank);
  const std::int64_t now = record.time_ns;
  switch (record.kind) {
    case EventKind::sent:
      rank.sent += static_cast<std::int64_t>(record.bytes);
      rank.bytes_sent.count(now, rank.sent);
      if (flow == FlowRole::none || record.peer < 0 ||
          static_cast<std::size_t>(record.peer) >= ranks_.size())
        return;
      return of(record.peer).in_flight.count(now, ++of(record.peer).incoming);
    case EventKind::received:
      if (flow != FlowRole::none) rank.in_flight.count(now, --rank.incoming);
      return;
    case EventKind::applied:
      return rank.staleness.count(now, record.staleness);
    default:
      return;
  }
}

void Timeline::finish() {
  for (RankTimeline& rank : ranks_) {
    rank.peer.finish(last_ns_);
    rank.worker.finish(last_ns_);
    rank.exchange.finish(last_ns_);
  }
}

}  // namespace grapevine
