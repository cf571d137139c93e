// What a viewer sees of a run: files are read back without the code that has written them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "apps/trace/perfetto/message_flows.hpp"
#include "apps/trace/perfetto/perfetto_export.hpp"
#include "apps/trace/perfetto/trace_survey.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/trace/chrome_reader.hpp"
#include "tests/apps/trace/perfetto_reader.hpp"
#include "tests/apps/trace/random_run.hpp"
#include "tests/file_size_limit.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace perfetto_test {

namespace fs = std::filesystem;

std::string all_problems(const SeenTimeline& seen) {
  std::string text;
  const TimelineRules rules(seen);
  for (const std::string& problem : rules.problems()) text += problem + '\n';
  return text;
}

SeenTimeline export_and_read(MergedTrace& trace, const fs::path& path) {
  const auto exported = export_perfetto(trace, path.string());
  EXPECT_TRUE(exported.ok()) << exported.error().message;
  const std::string text = read_file(path);
  return path.extension() == ".json" ? ChromeReader::read(text) : PerfettoReader::read(text);
}

// ---- what a timeline must show of the records

class Expectations {
 public:
  explicit Expectations(MergedTrace& trace) {
    trace.rewind();
    while (const TraceRecord* record = trace.next()) {
      ++kinds_[record->kind];
      add_message(*record);
      add_wait(*record);
    }
    trace.rewind();
  }

  void compare(const SeenTimeline& seen) const {
    const auto count = [&](const std::string& start) {
      return std::count_if(seen.events.begin(), seen.events.end(), [&](const SeenEvent& event) {
        return event.name.compare(0, start.size(), start) == 0 && event.type != SeenType::end;
      });
    };
    EXPECT_EQ(count("sent "), of(EventKind::sent));
    EXPECT_EQ(count("received "), of(EventKind::received));
    EXPECT_EQ(count("applied"), of(EventKind::applied));
    EXPECT_EQ(count("committed"), of(EventKind::committed));
    EXPECT_EQ(count("reduced"), of(EventKind::reduced));
    EXPECT_EQ(count("operation "), of(EventKind::reduced));
    EXPECT_EQ(count("checkpoint"), of(EventKind::cut));
    EXPECT_EQ(count("step "), of(EventKind::step_done));
    EXPECT_EQ(count("data wait"), of(EventKind::data_wait));
    compare_flows(seen);
    compare_waits(seen);
    compare_counters(seen);
  }

 private:
  long of(EventKind kind) const {
    const auto found = kinds_.find(kind);
    return found == kinds_.end() ? 0 : found->second;
  }

  void add_message(const TraceRecord& record) {
    const bool sent = record.kind == EventKind::sent;
    const std::string id = fmt::format("{}:{}", sent ? record.rank : record.peer, record.sequence);
    if (sent) {
      sent_.insert(id);
      bytes_ += static_cast<std::int64_t>(record.bytes);
    }
    if (record.kind == EventKind::received && sent_.count(id) != 0) received_.insert(id);
    if (record.kind == EventKind::applied && received_.count(id) != 0) applied_.insert(id);
    if (record.kind == EventKind::applied) staleness_ += record.staleness;
    last_ns_ = record.time_ns;
  }
  void add_wait(const TraceRecord& record) {
    const bool begins = record.kind == EventKind::wait_begin;
    if (!begins && record.kind != EventKind::wait_end) return;
    const auto open = waits_.find(record.rank);
    if (open != waits_.end()) waited_ns_ += record.time_ns - open->second;
    waits_.erase(record.rank);
    if (begins) waits_[record.rank] = record.time_ns;
  }

  void compare_flows(const SeenTimeline& seen) const {
    std::set<std::string> begun, ended_at_apply;
    for (const SeenEvent& event : seen.events) {
      for (const auto& id : event.flows)
        if (event.name.compare(0, 5, "sent ") == 0) begun.insert(id);
      for (const auto& id : event.ending_flows)
        if (event.name == "applied") ended_at_apply.insert(id);
    }
    EXPECT_EQ(begun, received_);
    EXPECT_EQ(ended_at_apply, applied_);
  }

  // However a wait is cut into slices, their lengths add up to it.
  void compare_waits(const SeenTimeline& seen) const {
    std::map<std::uint64_t, std::vector<const SeenEvent*>> open;
    std::int64_t waited = 0;
    for (const SeenEvent& event : seen.events) {
      auto& stack = open[event.track];
      if (event.type == SeenType::begin) stack.push_back(&event);
      if (event.type != SeenType::end || stack.empty()) continue;
      if (stack.back()->name.compare(0, 7, "waiting") == 0)
        waited += event.time_ns - stack.back()->time_ns;
      stack.pop_back();
    }
    for (const auto& [rank, since] : waits_) waited -= last_ns_ - since;  // without an end
    EXPECT_EQ(waited, waited_ns_);
  }

  void compare_counters(const SeenTimeline& seen) const {
    std::int64_t staleness = 0;
    std::map<std::uint64_t, std::int64_t> last;
    for (const SeenEvent& event : seen.events) {
      if (event.type != SeenType::counter) continue;
      const std::string& name = seen.tracks.at(event.track).name;
      if (name.find("staleness") != std::string::npos) staleness += event.value;
      EXPECT_GE(event.value, 0) << name;
      if (name.find("bytes") != std::string::npos) {
        EXPECT_GE(event.value, last[event.track]) << name;
      }
      last[event.track] = event.value;
    }
    std::int64_t bytes = 0;
    for (const auto& [track, value] : last) {
      const std::string& name = seen.tracks.at(track).name;
      if (name.find("in flight") != std::string::npos) {
        EXPECT_EQ(value, 0) << name;
      }
      if (name.find("bytes") != std::string::npos) bytes += value;
    }
    EXPECT_EQ(bytes, bytes_);
    EXPECT_EQ(staleness, staleness_);
  }

  std::map<EventKind, long> kinds_;
  std::set<std::string> sent_, received_, applied_;
  std::map<Rank, std::int64_t> waits_;
  std::int64_t waited_ns_ = 0, bytes_ = 0, staleness_ = 0, last_ns_ = 0;
};

class PerfettoRandomRuns : public testing::TestWithParam<std::tuple<RunPattern, const char*>> {};

// Several processes, clocks that differ, messages lost, waits longer than steps, files cut off.
TEST_P(PerfettoRandomRuns, KeepTheRulesAndShowEachRecord) {
  const auto [pattern, extension] = GetParam();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    RandomRunOptions options;
    options.pattern = pattern;
    options.seed = seed;
    options.workers = static_cast<std::int32_t>(2 + rng() % 5);
    options.processes = static_cast<std::int32_t>(1 + rng() % 3);
    options.overlap = rng() % 2 == 0;
    options.loss = rng() % 3 == 0 ? 0.05 : 0;
    const TemporaryDirectory folder;
    RandomRun(options).write(folder.path());
    if (seed % 4 == 3) {  // as a killed process leaves it
      const fs::path file = folder.path() / trace_file_name(0, 0, 0);
      fs::resize_file(file, fs::file_size(file) * 2 / 3);
    }
    if (seed % 4 == 2 && options.processes > 1)
      fs::remove(folder.path() / trace_file_name(1, 0, 0));
    auto trace = MergedTrace::open(folder.path().string());
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    const SeenTimeline seen =
        export_and_read(*trace, folder.path() / (std::string("run") + extension));
    EXPECT_EQ(all_problems(seen), "");
    Expectations(*trace).compare(seen);
    if (testing::Test::HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PerfettoRandomRuns,
                         testing::Combine(testing::Values(RunPattern::ring, RunPattern::gossip,
                                                          RunPattern::server),
                                          testing::Values(".pftrace", ".json")));

TEST(PerfettoRealRun, OfFourProcessesOverUcxKeepsTheRules) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  const TemporaryDirectory folder;
  const std::string out = (folder.path() / "run").string();
  const ProcessResult run = run_process({"launch", "-n", "4", "--", "train", "--algorithm", "osgp",
                                         "--model", "linear", "--steps", "40", "--transport", "ucx",
                                         "--threads", "1", "--validate", "end", "--out", out});
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  for (const char* name : {"run.pftrace", "run.json"}) {
    SCOPED_TRACE(name);
    auto trace = MergedTrace::open(out);
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    EXPECT_EQ(trace->processes(), 4);
    EXPECT_EQ(trace->missing(), std::vector<std::string>{});
    const SeenTimeline seen = export_and_read(*trace, folder.path() / name);
    EXPECT_EQ(all_problems(seen), "");
    Expectations(*trace).compare(seen);
  }
}

// ---- the rules themselves

RandomRunOptions small_run() {
  RandomRunOptions options;
  options.steps = 2;
  options.workers = 3;
  return options;
}

// Every single packet is needed, so that the rules above mean something: without any one of the
// slices, descriptions, names or messages' ends a rule is broken.
TEST(PerfettoRules, FindWhereAPacketIsMissing) {
  const TemporaryDirectory folder;
  RandomRun(small_run()).write(folder.path());
  auto trace = MergedTrace::open(folder.path().string());
  ASSERT_TRUE(trace.ok());
  const fs::path path = folder.path() / "run.pftrace";
  ASSERT_EQ(all_problems(export_and_read(*trace, path)), "");
  const auto packets = PerfettoReader::packets(read_file(path));
  ASSERT_GT(packets.size(), 100U);
  int needed = 0;
  for (std::size_t left_out = 0; left_out < packets.size(); ++left_out) {
    const SeenTimeline of_one = PerfettoReader::read(packets[left_out]);
    const bool is_event = !of_one.events.empty();
    const bool must_show = !is_event || of_one.events[0].type == SeenType::begin ||
                           of_one.events[0].type == SeenType::end ||
                           !of_one.events[0].flows.empty() ||
                           !of_one.events[0].ending_flows.empty();
    if (!must_show) continue;
    std::string rest;
    for (std::size_t i = 0; i < packets.size(); ++i)
      if (i != left_out) rest += packets[i];
    EXPECT_NE(all_problems(PerfettoReader::read(rest)), "") << "without packet " << left_out;
    ++needed;
  }
  EXPECT_GT(needed, 60);
}

TEST(PerfettoRules, FindWhereTheFileIsCutOff) {
  const TemporaryDirectory folder;
  RandomRun(small_run()).write(folder.path());
  auto trace = MergedTrace::open(folder.path().string());
  ASSERT_TRUE(trace.ok());
  const fs::path path = folder.path() / "run.pftrace";
  ASSERT_EQ(all_problems(export_and_read(*trace, path)), "");
  const std::string whole = read_file(path);
  EXPECT_NE(all_problems(PerfettoReader::read(whole.substr(0, whole.size() - 1))), "");
}

TEST(PerfettoRules, FindDisorder) {
  SeenTimeline good;
  good.processes[1] = "host";
  good.tracks[2] = {1, "peer", false};
  const auto event = [](std::int64_t time_ns, SeenType type, const std::string& name) {
    SeenEvent made;
    made.track = 2;
    made.time_ns = time_ns;
    made.type = type;
    made.name = name;
    return made;
  };
  good.events = {event(1, SeenType::begin, "step 0"), event(2, SeenType::instant, "sent chunk"),
                 event(3, SeenType::instant, "received chunk"), event(4, SeenType::end, "")};
  good.events[1].flows = {"0:1"};
  good.events[2].ending_flows = {"0:1"};
  ASSERT_EQ(all_problems(good), "");

  SeenTimeline back_in_time = good;
  back_in_time.events[3].time_ns = 2;
  EXPECT_NE(all_problems(back_in_time).find("time decreases"), std::string::npos);
  SeenTimeline received_first = good;
  std::swap(received_first.events[1], received_first.events[2]);
  std::swap(received_first.events[1].time_ns, received_first.events[2].time_ns);
  EXPECT_NE(all_problems(received_first).find("does not begin at a sending"), std::string::npos);
  SeenTimeline no_end = good;
  no_end.events[2].ending_flows.clear();
  EXPECT_NE(all_problems(no_end).find("flow with one end"), std::string::npos);
}

// ---- by hand

TraceRecord made(std::int64_t time_ns, EventKind kind, Rank rank, Rank peer = -1,
                 std::uint64_t sequence = 0) {
  TraceRecord record;
  record.time_ns = time_ns;
  record.kind = kind;
  record.rank = rank;
  record.peer = peer;
  record.sequence = sequence;
  return record;
}

class PerfettoByHand : public testing::Test {
 protected:
  // Of one process; a frame for each record.
  MergedTrace trace_of(const std::vector<TraceRecord>& records, std::int32_t workers,
                       std::int64_t sampled = 1, const std::vector<std::int64_t>& pulses = {}) {
    TraceHeader header;
    header.workers = workers;
    header.sampled = sampled;
    header.host = "h";
    header.pid = 4;
    for (Rank rank = 0; rank < workers; ++rank) header.ranks.push_back(rank);
    std::string bytes = trace_magic();
    append_header(bytes, header);
    for (const TraceRecord& record : records) append_records(bytes, {record});
    for (const std::int64_t pulse : pulses) append_pulse(bytes, pulse);
    append_end(bytes);
    std::ofstream(folder_.path() / trace_file_name(0, 0, 0), std::ios::binary) << bytes;
    auto trace = MergedTrace::open(folder_.path().string());
    EXPECT_TRUE(trace.ok());
    return *std::move(trace);
  }
  SeenTimeline seen(MergedTrace trace) {
    SeenTimeline seen = export_and_read(trace, folder_.path() / "run.pftrace");
    EXPECT_EQ(all_problems(seen), "");
    return seen;
  }
  // "name begin-end" of the slices of a track, in the order of their ends.
  static std::vector<std::string> slices(const SeenTimeline& seen, const std::string& track) {
    std::vector<std::string> found;
    std::vector<const SeenEvent*> open;
    for (const SeenEvent& event : seen.events) {
      if (seen.tracks.at(event.track).name != track) continue;
      if (event.type == SeenType::begin) open.push_back(&event);
      if (event.type != SeenType::end) continue;
      found.push_back(
          fmt::format("{} {}-{}", open.back()->name, open.back()->time_ns, event.time_ns));
      open.pop_back();
    }
    return found;
  }
  TemporaryDirectory folder_;
};

using Slices = std::vector<std::string>;

TEST_F(PerfettoByHand, StepsFollowEachOtherAndAWaitIsCutAtTheirEnd) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::asked, 0),          made(10, EventKind::wait_begin, 0, 3),
      made(20, EventKind::step_done, 0),     made(35, EventKind::wait_end, 0),
      made(40, EventKind::step_done, 0),     made(50, EventKind::wait_begin, 0),
      made(60, EventKind::wait_begin, 0, 1), made(70, EventKind::committed, 0)};
  records[2].step = 7;
  records[4].step = 8;
  EXPECT_EQ(slices(seen(trace_of(records, 4)), "rank 0 peer"),
            (Slices{"waiting for rank 3 10-20", "step 7 0-20", "waiting for rank 3 20-35",
                    "step 8 20-40", "waiting 50-60", "waiting for rank 1 60-70"}));
}

TEST_F(PerfettoByHand, SampledStepsBeginWithTheirFirstRecord) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::asked, 0), made(10, EventKind::step_done, 0),
      made(90, EventKind::asked, 0), made(100, EventKind::step_done, 0)};
  records[3].step = 10;
  EXPECT_EQ(slices(seen(trace_of(records, 1, 10)), "rank 0 peer"),
            (Slices{"step 0 0-10", "step 10 90-100"}));
}

TEST_F(PerfettoByHand, TheWorkerComputesAfterItWasAsked) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::asked, 0),      made(100, EventKind::data_wait, 0),
      made(100, EventKind::produced, 0), made(200, EventKind::asked, 0),
      made(250, EventKind::produced, 0), made(250, EventKind::data_wait, 0),
      made(300, EventKind::asked, 0),    made(400, EventKind::committed, 0)};
  records[1].duration_ns = 30;  // then 40 of computing
  records[2].duration_ns = 40;
  for (const std::size_t i : {3U, 4U, 5U}) records[i].step = 1;
  records[4].duration_ns = 50;  // the wait is a part of it
  records[5].duration_ns = 20;
  records[6].step = 2;
  EXPECT_EQ(slices(seen(trace_of(records, 1)), "rank 0 worker"),
            (Slices{"data wait 30-60", "computing step 0 30-100", "data wait 200-220",
                    "computing step 1 200-250", "computing step 2, not finished 300-400"}));
}

TEST_F(PerfettoByHand, AnOperationLastsFromItsFirstMessageToItsResult) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::sent, 0, 1, 1), made(5, EventKind::sent, 0, 1, 2),
      made(9, EventKind::reduced, 0), made(12, EventKind::sent, 0, 1, 3)};
  for (TraceRecord& record : records) record.operation = 4;
  records[3].operation = 5;  // without a result
  EXPECT_EQ(slices(seen(trace_of(records, 2)), "rank 0 exchange"), Slices{"operation 4 0-9"});
}

TEST_F(PerfettoByHand, WhatWasOpenBeforeAResumptionEndsThere) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::asked, 0), made(5, EventKind::cut, 0), made(10, EventKind::wait_begin, 0),
      made(900, EventKind::resumed, 0), made(950, EventKind::step_done, 0)};
  records[1].operation = 1;  // the resumption is of another checkpoint, so nothing is undone
  records[3].operation = 2;
  const SeenTimeline timeline = seen(trace_of(records, 1));
  EXPECT_EQ(slices(timeline, "rank 0 peer"),
            (Slices{"waiting 10-10", "step 0 0-10", "step 0 900-950"}));
  EXPECT_EQ(slices(timeline, "rank 0 worker"), Slices{"computing step 0, not finished 0-10"});
}

TEST_F(PerfettoByHand, APausedProcessShows) {
  const std::int64_t ms = 1'000'000;
  const std::vector<std::int64_t> pulses = {0, 300 * ms, 350 * ms, 900 * ms};
  EXPECT_EQ(
      slices(seen(trace_of({made(100 * ms, EventKind::committed, 0)}, 1, 1, pulses)), "process"),
      (Slices{"paused 0-200000000", "paused 250000000-800000000"}));
}

TEST_F(PerfettoByHand, RecordsOfOneTimeAreNotStacked) {
  const std::vector<TraceRecord> records(1000, made(5, EventKind::committed, 0));
  const SeenTimeline timeline = seen(trace_of(records, 1));
  EXPECT_EQ(slices(timeline, "rank 0 peer").size(), 999U);
}

TEST_F(PerfettoByHand, AFlowLeadsToTheLastUseOfItsMessage) {
  std::vector<TraceRecord> records = {
      made(0, EventKind::sent, 0, 1, 1),      made(1, EventKind::sent, 0, 1, 2),
      made(2, EventKind::sent, 0, 1, 3),      made(3, EventKind::sent, 0, 1, 4),
      made(10, EventKind::wait_begin, 1, 0),  made(11, EventKind::received, 1, 0, 1),
      made(12, EventKind::wait_end, 1, 0, 1), made(13, EventKind::applied, 1, 0, 1),
      made(14, EventKind::received, 1, 0, 2), made(15, EventKind::applied, 1, 0, 2),
      made(16, EventKind::applied, 1, 0, 2),  made(17, EventKind::received, 1, 0, 3),
      made(18, EventKind::applied, 1, 0, 4)};  // 4 has no receipt
  const SeenTimeline timeline = seen(trace_of(records, 2));
  std::map<std::string, std::string> flows;
  for (const SeenEvent& event : timeline.events) {
    for (const auto& id : event.flows)
      flows[id] += fmt::format("{} {}, ", event.name, event.time_ns);
    for (const auto& id : event.ending_flows)
      flows[id] += fmt::format("{} {}.", event.name, event.time_ns);
  }
  EXPECT_EQ(flows, (std::map<std::string, std::string>{
                       {"0:1", "sent 0, received 11, wait ended 12, applied 13."},
                       {"0:2", "sent 1, received 14, applied 15."},
                       {"0:3", "sent 2, received 17."}}));
}

TEST_F(PerfettoByHand, DetailsAreTheRecordsOwn) {
  TraceRecord sent = made(1, EventKind::sent, 0, 1, 9);
  sent.payload = PayloadKind::packed_chunk;
  sent.operation = 0;
  sent.round = 2;
  sent.index = 5;
  sent.bytes = 77;
  TraceRecord applied = made(2, EventKind::applied, 1, 0);
  applied.staleness = 3;
  applied.version = -4;
  applied.origin = 6;
  applied.origin_step = 8;
  const SeenTimeline timeline = seen(trace_of({sent, applied}, 2));
  const auto find = [&](const std::string& name) {
    return *std::find_if(timeline.events.begin(), timeline.events.end(),
                         [&](const SeenEvent& event) { return event.name == name; });
  };
  using Numbers = std::map<std::string, std::int64_t>;
  EXPECT_EQ(
      find("sent packed chunk").numbers,
      (Numbers{
          {"step", 0}, {"to", 1}, {"operation", 0}, {"round", 2}, {"index", 5}, {"bytes", 77}}));
  EXPECT_EQ(find("sent packed chunk").texts.at("payload"), "packed chunk");
  EXPECT_EQ(find("sent packed chunk").category, "message");
  EXPECT_EQ(find("applied").numbers, (Numbers{{"step", 0},
                                              {"from", 0},
                                              {"staleness", 3},
                                              {"version", -4},
                                              {"origin", 6},
                                              {"origin_step", 8}}));
  ASSERT_EQ(timeline.processes.size(), 1U);
  EXPECT_EQ(timeline.processes.begin()->second, "h pid 4, ranks 0-1");
}

TEST_F(PerfettoByHand, ATraceWithoutRecordsIsAFileToo) {
  MergedTrace trace = trace_of({}, 2);
  EXPECT_EQ(all_problems(export_and_read(trace, folder_.path() / "run.pftrace")), "");
  EXPECT_EQ(all_problems(export_and_read(trace, folder_.path() / "run.json")), "");
}

// ---- errors

TEST_F(PerfettoByHand, OtherNamesAreRefused) {
  MergedTrace trace = trace_of({made(0, EventKind::committed, 0)}, 1);
  const fs::path path = folder_.path() / "run.txt";
  const auto exported = export_perfetto(trace, path.string());
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.error().code, Errc::bad_input);
  EXPECT_EQ(exported.error().message,
            "--perfetto " + path.string() +
                ": the name must end in .pftrace (for ui.perfetto.dev) or .json (Chrome's trace "
                "events, for small runs)");
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(PerfettoByHand, LongRunsAreRefusedAsJson) {
  MergedTrace trace = trace_of({}, 1);
  std::string bytes = read_file(folder_.path() / trace_file_name(0, 0, 0));
  std::vector<TraceRecord> frame(kMostChromeRecords / 100 + 1, made(0, EventKind::committed, 0));
  for (int i = 0; i < 100; ++i) append_records(bytes, frame);
  std::ofstream(folder_.path() / trace_file_name(0, 0, 0), std::ios::binary) << bytes;
  auto longer = MergedTrace::open(folder_.path().string());
  ASSERT_TRUE(longer.ok());
  const auto exported = export_perfetto(*longer, (folder_.path() / "run.json").string());
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.error().code, Errc::bad_input);
  EXPECT_NE(exported.error().message.find("500100 records"), std::string::npos)
      << exported.error().message;
  EXPECT_NE(exported.error().message.find("run.pftrace"), std::string::npos);
}

TEST_F(PerfettoByHand, AFileThatCannotBeMadeIsNamed) {
  MergedTrace trace = trace_of({made(0, EventKind::committed, 0)}, 1);
  const auto exported =
      export_perfetto(trace, (folder_.path() / "not there" / "run.pftrace").string());
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.error().code, Errc::io);
  EXPECT_NE(exported.error().message.find("not there"), std::string::npos);
}

TEST_F(PerfettoByHand, AFullDiskLeavesNoFile) {
  RandomRunOptions options;
  options.steps = 400;
  RandomRun(options).write(folder_.path() / "long");
  auto trace = MergedTrace::open((folder_.path() / "long").string());
  ASSERT_TRUE(trace.ok());
  for (const char* name : {"run.pftrace", "run.json"}) {
    const fs::path path = folder_.path() / name;
    Expected<void> exported;
    {
      const FileSizeLimit full(100'000);
      exported = export_perfetto(*trace, path.string());
    }
    ASSERT_FALSE(exported.ok());
    EXPECT_EQ(exported.error().code, Errc::io);
    EXPECT_NE(exported.error().message.find(name), std::string::npos) << exported.error().message;
    EXPECT_FALSE(fs::exists(path));
  }
}

TEST(NumberRunsTest, GivesBackWhatWasAdded) {
  std::mt19937_64 rng(1);
  std::vector<std::int64_t> numbers;
  NumberRuns runs;
  for (int i = 0; i < 1000; ++i)
    numbers.push_back(rng() % 4 == 0 || i == 0 ? static_cast<std::int64_t>(rng() % 20)
                                               : numbers.back() + 1);
  numbers.push_back(std::numeric_limits<std::int64_t>::max());
  numbers.push_back(std::numeric_limits<std::int64_t>::min());
  for (const std::int64_t number : numbers) runs.add(number);
  for (const std::int64_t number : numbers) {
    ASSERT_EQ(runs.front(), number);
    runs.pop();
  }
  EXPECT_FALSE(runs.front().has_value());
}

}  // namespace perfetto_test
}  // namespace grapevine
