// A made-up run for tests of the report: the folder with its trace, and what other parts of the
// program would say of it. Header-only.
#pragma once
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/trace/report/report_data.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

struct SyntheticRun {
  std::int32_t ranks = 8;
  Step steps = 200;
  std::uint64_t seed = 1;
  // The last frame of the trace is cut off, one rank waits for ever, no summary.
  bool killed = false;
  bool metrics = true;
  std::string model = "lenet", host = "node-1";
};

// Push-sum gossip on an exponential graph. One rank is slow in the middle third of the run.
class SyntheticTrace {
 public:
  SyntheticTrace(SyntheticRun run, std::filesystem::path folder)
      : run_(std::move(run)), folder_(std::move(folder)), random_(run_.seed) {}

  void write() {
    std::filesystem::create_directories(folder_ / "trace");
    TraceHeader header;
    header.workers = run_.ranks;
    for (Rank rank = 0; rank < run_.ranks; ++rank) header.ranks.push_back(rank);
    header.host = run_.host;
    TraceFileWriter writer((folder_ / "trace").string(), header, /*limit=*/0);
    clocks_.resize(static_cast<std::size_t>(run_.ranks));
    records_.resize(clocks_.size());
    const Step last = run_.killed ? run_.steps * 2 / 3 : run_.steps;
    for (Step step = 0; step < last; ++step) {
      add_step(step);
      if (step % 256 == 255) flush(writer);
    }
    if (run_.killed) {
      for (Rank rank = 0; rank < run_.ranks; ++rank)
        if (rank != slow_rank()) add(rank, EventKind::wait_begin, last, 0).peer = slow_rank();
      // What the slow rank has not finished.
      clocks_[static_cast<std::size_t>(slow_rank())] += 900'000'000;
      add(slow_rank(), EventKind::produced, last, 0).duration_ns = 850'000'000;
    }
    flush(writer);
    if (!run_.killed) check(writer.close());
    if (run_.killed) cut_off();
    if (run_.metrics) write_metrics();
    if (run_.killed)
      write_text("job.toml", "algorithm = 'sgp'\nmodel = 'lenet'\ndata = 'glyphs'\nworkers = " +
                                 std::to_string(run_.ranks) + "\nseed = 7\n");
    else
      write_summary();
  }

 private:
  static void check(const Expected<void>& done) {
    if (!done) throw std::runtime_error(done.error().message);
  }
  Rank slow_rank() const { return run_.ranks / 3; }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  TraceRecord& add(Rank rank, EventKind kind, Step step, std::int64_t after_ns) {
    const auto i = static_cast<std::size_t>(rank);
    clocks_[i] += after_ns;
    TraceRecord record;
    record.time_ns = clocks_[i];
    record.kind = kind;
    record.rank = record.origin = rank;
    record.step = record.origin_step = step;
    records_[i].push_back(record);
    return records_[i].back();
  }

  void add_step(Step step) {
    const auto ranks = static_cast<std::size_t>(run_.ranks);
    std::vector<std::int64_t> sent_ns(ranks);
    const std::int32_t hops = std::max(1, static_cast<std::int32_t>(std::log2(run_.ranks)));
    const auto distance = static_cast<Rank>(1 << (step % hops)) % std::max(run_.ranks, 1);
    const bool middle = step > run_.steps / 3 && step < run_.steps * 2 / 3;
    for (Rank rank = 0; rank < run_.ranks; ++rank) {
      const auto data_ns = static_cast<std::int64_t>(2e5 * uniform());
      add(rank, EventKind::data_wait, step, data_ns).duration_ns = data_ns;
      double compute_s = 0.008 * (1 + 0.3 * uniform());
      if (rank == slow_rank() && middle) compute_s *= 6;
      if (uniform() < 0.002) compute_s *= 12;
      const auto compute_ns = static_cast<std::int64_t>(1e9 * compute_s);
      add(rank, EventKind::produced, step, compute_ns).duration_ns = compute_ns;
      TraceRecord& sent = add(rank, EventKind::sent, step, 40'000);
      sent.peer = (rank + distance) % run_.ranks;
      sent.sequence = static_cast<std::uint64_t>(step) + 1;
      sent.bytes = 61706 * 4 + 64;
      sent_ns[static_cast<std::size_t>(rank)] = sent.time_ns;
    }
    for (Rank rank = 0; rank < run_.ranks; ++rank)
      receive(step, rank, (rank - distance + run_.ranks) % run_.ranks, sent_ns);
  }

  void receive(Step step, Rank rank, Rank from, const std::vector<std::int64_t>& sent_ns) {
    const auto i = static_cast<std::size_t>(rank);
    add(rank, EventKind::wait_begin, step, 10'000).peer = from;
    const std::int64_t arrival_ns =
        sent_ns[static_cast<std::size_t>(from)] + static_cast<std::int64_t>(1e6 * (1 + uniform()));
    clocks_[i] = std::max(clocks_[i], arrival_ns);
    TraceRecord& received = add(rank, EventKind::received, step, 1000);
    received.peer = received.origin = from;
    received.sequence = static_cast<std::uint64_t>(step) + 1;
    TraceRecord& end = add(rank, EventKind::wait_end, step, 1000);
    end.peer = from;
    end.sequence = static_cast<std::uint64_t>(step) + 1;
    TraceRecord& applied = add(rank, EventKind::applied, step, 50'000);
    applied.peer = applied.origin = from;
    applied.staleness = static_cast<std::int64_t>(-1.2 * std::log(1 - 0.999 * uniform()) +
                                                  (from == slow_rank() ? 3 : 0));
    add(rank, EventKind::committed, step, 1000);
    add(rank, EventKind::step_done, step, 300'000);
  }

  void flush(TraceFileWriter& writer) {
    std::string frames;
    for (auto& records : records_) {
      if (!records.empty()) append_records(frames, records);
      records.clear();
    }
    check(writer.write(frames));
  }

  void cut_off() const {
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "trace"))
      std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 5);
  }

  void write_text(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  void write_metrics() {
    std::ofstream file(folder_ / "metrics.csv");
    file << "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,"
            "staleness,val_loss,val_top1,val_top5\n";
    for (Step step = 0; step < run_.steps; ++step) {
      const double done = static_cast<double>(step) / static_cast<double>(run_.steps);
      const double loss = 0.1 + 2.2 * std::exp(-4 * done);
      for (Rank rank = 0; rank < run_.ranks; ++rank)
        file << rank << ',' << 2 * done << ',' << step << ','
             << 0.012 * static_cast<double>(step + 1) << ",0.01,0.001,0.0001,"
             << loss * (0.8 + 0.4 * uniform()) << ',' << 1 - 0.4 * loss + 0.03 * uniform()
             << ",1,0.03,1,,,\n";
      if (step % 50 == 49)
        file << "0,1," << step << ",,,,,,,,,," << loss * 1.05 << ',' << 1 - 0.42 * loss << ",1\n";
    }
    file << "0,2,99";  // the process was killed in the middle of a row
  }

  void write_summary() const {
    nlohmann::ordered_json summary = {
        {"algorithm", "sgp"},
        {"wiring", {{"exchange", "gossip"}, {"averaging", "push-sum"}}},
        {"model", run_.model},
        {"data", "glyphs"},
        {"workers", run_.ranks},
        {"parameters", 61706},
        {"steps", run_.steps},
        {"seed", run_.seed},
        {"wall_seconds", 12.5},
        {"samples_per_second", 6954.7},
        {"final_loss", 0.1183},
        {"test_accuracy", 0.972},
        {"bytes_sent", 183712320},
        {"host", run_.host},
        {"date", "2026-11-23T21:00:00Z"},
        {"interrupted", false},
        {"versions", {{"grapevine", "0.1.0"}}}};
    write_text("summary.json",
               summary.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  const SyntheticRun run_;
  const std::filesystem::path folder_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> clocks_;  // by rank
  std::vector<std::vector<TraceRecord>> records_;
};

// A trace as the verb would read it.
struct ReadRun {
  explicit ReadRun(const std::filesystem::path& folder)
      : trace(open(folder)), collector(trace.ranks()) {
    std::map<std::int64_t, std::int64_t> histogram;
    std::map<std::pair<Rank, Rank>, std::pair<std::int64_t, std::uint64_t>> edges;
    std::int64_t produced = 0, applied = 0, messages = 0;
    std::uint64_t sent_bytes = 0;
    while (const TraceRecord* record = trace.next()) {
      collector.add(*record);
      if (record->kind == EventKind::applied) ++histogram[record->staleness];
      if (record->kind == EventKind::produced) ++produced;
      if (record->kind == EventKind::committed) ++applied;
      if (record->kind != EventKind::sent) continue;
      ++messages;
      sent_bytes += record->bytes;
      auto& [count, bytes] = edges[{record->rank, record->peer}];
      ++count;
      bytes += record->bytes;
    }
    collector.finish();
    inputs.run = folder.string();
    inputs.collector = &collector;
    inputs.workers = trace.workers();
    inputs.servers = trace.servers();
    inputs.processes = trace.processes();
    inputs.figures["messages"] = messages;
    inputs.figures["bytes"] = sent_bytes;
    inputs.figures["applied"] = applied;
    fill_staleness(histogram);
    for (const auto& [edge, sums] : edges)
      inputs.figures["edges"].push_back({{"from", edge.first},
                                         {"to", edge.second},
                                         {"messages", sums.first},
                                         {"bytes", sums.second},
                                         {"mean_staleness", 1.5},
                                         {"p99_latency_s", 0.0019}});
    inputs.figures["contributions"] = {{"produced", produced},
                                       {"applied", applied},
                                       {"pending", produced - applied},
                                       {"dropped", 0},
                                       {"destroyed", 0}};
    inputs.figures["missing"] = trace.missing();
    const Rank slow = trace.ranks() / 3, next = (slow + 1) % trace.ranks();
    inputs.culprits = {
        {{"kind", "compute"}, {"rank", slow}, {"peer", -1}, {"seconds", 4.2}, {"share", 0.61}},
        {{"kind", "link"}, {"rank", next}, {"peer", slow}, {"seconds", 1.1}, {"share", 0.16}},
        {{"kind", "data"}, {"rank", 0}, {"peer", -1}, {"seconds", 0.4}, {"share", 0.058}},
        {{"kind", "pause"}, {"rank", 1}, {"peer", -1}, {"seconds", 0.2}, {"share", 0.029}}};
    inputs.chains = {
        "step 104 of rank " + std::to_string(next) + ": 62.1 ms",
        "  waited 51.0 ms for the share of rank " + std::to_string(slow) + ", step 104",
        "  rank " + std::to_string(slow) + " computed the gradient of step 104 in 60.2 ms"};
  }

  MergedTrace trace;
  ReportCollector collector;
  ReportInputs inputs;

 private:
  static MergedTrace open(const std::filesystem::path& folder) {
    auto trace = MergedTrace::open(folder.string());
    if (!trace) throw std::runtime_error(trace.error().message);
    return std::move(*trace);
  }

  void fill_staleness(const std::map<std::int64_t, std::int64_t>& histogram) {
    auto& staleness = inputs.figures["staleness"];
    double sum = 0, all = 0;
    staleness["histogram"] = nlohmann::ordered_json::object();
    for (const auto& [value, count] : histogram) {
      staleness["histogram"][std::to_string(value)] = count;
      sum += static_cast<double>(value * count);
      all += static_cast<double>(count);
    }
    staleness["mean"] = all > 0 ? sum / all : 0;
    staleness["p50"] = 1;
    staleness["p99"] = 7;
    staleness["max"] = histogram.empty() ? 0 : histogram.rbegin()->first;
  }
};

}  // namespace grapevine
