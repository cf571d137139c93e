#include "messages/trace/merged_trace.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "tests/apps/trace/trace_folder.hpp"

namespace grapevine {
namespace merged_trace_test {

using testing_apps::record_of;
using testing_apps::TestFolder;

constexpr std::int64_t kMs = 1000000;

// One process with one rank of its own number, on a machine of its own.
struct Process {
  Process(std::int32_t number, std::int32_t processes) {
    header.process = number;
    header.processes = processes;
    header.ranks = {number};
    header.workers = processes;
    header.boot = "machine " + std::to_string(number);
  }
  TraceRecord& add(EventKind kind, std::int64_t time_ns, Step step) {
    records.push_back(record_of(kind, time_ns, header.ranks[0], step));
    return records.back();
  }
  // A cut for a checkpoint of a run, or the resumption from it.
  void add_mark(EventKind kind, std::int64_t time_ns, std::int64_t checkpoint, std::uint64_t run) {
    TraceRecord& record = add(kind, time_ns, 0);
    record.operation = checkpoint;
    record.sequence = run;
  }
  // Its part of a run, and the zero of its clock.
  void be_of(std::uint64_t run, std::int32_t part, std::int64_t zero_ns) {
    header.run = run;
    header.part = part;
    header.zero_monotonic_ns = header.zero_realtime_ns = zero_ns;
  }
  void message(bool sent, std::int64_t time_ns, Rank peer, std::uint64_t sequence) {
    TraceRecord& record = add(sent ? EventKind::sent : EventKind::received, time_ns, 0);
    record.peer = peer;
    record.sequence = sequence;
  }

  TraceHeader header;
  std::vector<TraceRecord> records;
  std::string clocks;
};

// In frames of `frame` records.
void write(const TestFolder& folder, const Process& process, std::size_t frame = 7) {
  TraceFileWriter writer(folder.path(), process.header, 0);
  std::string frames = process.clocks;
  for (std::size_t i = 0; i < process.records.size(); i += frame) {
    const auto begin = process.records.begin() + static_cast<std::ptrdiff_t>(i);
    const auto count = std::min(frame, process.records.size() - i);
    append_records(frames, {begin, begin + static_cast<std::ptrdiff_t>(count)});
  }
  ASSERT_TRUE(writer.write(frames).ok());
  ASSERT_TRUE(writer.close().ok());
}

// As a process that is killed leaves its trace: not closed. `pulse_ns`: that it was alive; 0: none.
void write_open(const TestFolder& folder, const Process& process, std::int64_t pulse_ns = 0) {
  TraceFileWriter writer(folder.path(), process.header, 0);
  std::string frames;
  append_records(frames, process.records);
  if (pulse_ns > 0) append_pulse(frames, pulse_ns);
  ASSERT_TRUE(writer.write(frames).ok());
}

std::vector<TraceRecord> all(MergedTrace& trace) {
  std::vector<TraceRecord> records;
  trace.rewind();
  while (const TraceRecord* record = trace.next()) records.push_back(*record);
  return records;
}

// Every record once, those of a rank in their order, times that never run back, and no receipt
// before its sending.
void expect_causal(const std::vector<TraceRecord>& records, const std::vector<Process>& processes) {
  std::map<Rank, std::size_t> next;
  std::map<Rank, std::uint64_t> sent;
  std::int64_t now = 0;
  for (const TraceRecord& record : records) {
    ASSERT_GE(record.time_ns, now);
    now = record.time_ns;
    const auto& own = processes[static_cast<std::size_t>(record.rank)].records;
    const std::size_t at = next[record.rank]++;
    ASSERT_LT(at, own.size());
    ASSERT_EQ(record.sequence, own[at].sequence);
    ASSERT_EQ(record.kind, own[at].kind);
    if (record.kind == EventKind::sent) sent[record.rank] = record.sequence;
    if (record.kind != EventKind::received) continue;
    ASSERT_LE(record.sequence, sent[record.peer]);
  }
  for (const Process& process : processes)
    EXPECT_EQ(next[process.header.ranks[0]], process.records.size());
}

// Ranks that send to random others, which receive a little later; each by a clock that is wrong by
// up to `skew`.
std::vector<Process> random_run(std::uint64_t seed, std::int32_t ranks, std::int64_t skew) {
  std::mt19937_64 rng(seed);
  std::vector<Process> processes;
  for (std::int32_t i = 0; i < ranks; ++i) processes.emplace_back(i, ranks);
  struct Event {
    std::int64_t time;
    Rank rank;
    bool sent;
    Rank peer;
    std::uint64_t sequence;
  };
  std::vector<Event> events;
  std::map<std::pair<Rank, Rank>, std::int64_t> last_receipt;
  std::vector<std::uint64_t> sequences(static_cast<std::size_t>(ranks));
  for (int i = 0; i < 600; ++i) {
    const auto from = static_cast<Rank>(rng() % static_cast<std::uint64_t>(ranks));
    const auto to = static_cast<Rank>((from + 1 + static_cast<Rank>(rng() % (ranks - 1u))) % ranks);
    const std::int64_t at = kMs * (1000 + i);
    const std::uint64_t sequence = ++sequences[static_cast<std::size_t>(from)];
    std::int64_t& receipt = last_receipt[{from, to}];
    receipt = std::max(receipt + 1, at + static_cast<std::int64_t>(rng() % (5 * kMs)));
    events.push_back({at, from, true, to, sequence});
    events.push_back({receipt, to, false, from, sequence});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  std::vector<std::int64_t> wrong;
  for (std::int32_t i = 0; i < ranks; ++i)
    wrong.push_back(skew == 0 ? 0 : static_cast<std::int64_t>(rng() % (2u * skew)) - skew);
  for (const Event& event : events)
    processes[static_cast<std::size_t>(event.rank)].message(
        event.sent, event.time + wrong[static_cast<std::size_t>(event.rank)], event.peer,
        event.sequence);
  return processes;
}

TEST(MergedTrace, IsCausalWhateverTheClocksSay) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    for (const std::int64_t skew : {std::int64_t{0}, 3 * kMs, 300 * kMs, 100000 * kMs}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", skew " + std::to_string(skew));
      const TestFolder folder;
      const auto processes = random_run(seed, 4, skew);
      for (const Process& process : processes) write(folder, process);
      auto trace = MergedTrace::open(folder.path());
      ASSERT_TRUE(trace.ok()) << trace.error().message;
      EXPECT_TRUE(trace->missing().empty());
      expect_causal(all(*trace), processes);
      expect_causal(all(*trace), processes);  // again after rewind()
    }
}

TEST(MergedTrace, RightClocksAreKept) {
  const TestFolder folder;
  const auto processes = random_run(9, 4, 0);
  for (const Process& process : processes) write(folder, process);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  std::map<Rank, std::size_t> next;
  for (const TraceRecord& record : all(*trace)) {
    const auto& own = processes[static_cast<std::size_t>(record.rank)].records;
    ASSERT_EQ(record.time_ns + 1000 * kMs, own[next[record.rank]++].time_ns);
  }
}

// ---- clocks ----

// Process 1 is ten seconds and 40 us/s off; its messages take 1 ms.
TEST(MergedTrace, SamplesAlignClocks) {
  const TestFolder folder;
  const auto remote = [](std::int64_t head) { return head + 10000 * kMs + head / 25000; };
  std::vector<Process> processes{{0, 2}, {1, 2}};
  processes[1].header.zero_realtime_ns = 77;  // the samples count
  for (std::int64_t at = 0; at <= 600000 * kMs; at += 60000 * kMs)
    append_clock(processes[0].clocks, {1, at, remote(at + kMs / 10), at + kMs / 5});
  std::uint64_t sequence = 0;
  for (std::int64_t at = 1000 * kMs; at < 600000 * kMs; at += 1000 * kMs) {
    processes[0].message(true, at, 1, ++sequence);
    processes[1].message(false, remote(at + kMs), 0, sequence);
  }
  for (const Process& process : processes) write(folder, process);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  std::map<std::uint64_t, std::int64_t> sent;
  for (const TraceRecord& record : all(*trace)) {
    if (record.kind == EventKind::sent) {
      sent[record.sequence] = record.time_ns;
    } else {
      EXPECT_NEAR(static_cast<double>(record.time_ns - sent[record.sequence]), kMs, kMs / 10);
    }
  }
}

// On another machine, process 1 is lost and returns 20 s later, with another zero. The steps of
// both lives are as far from those of process 0 as they were.
TEST(MergedTrace, AProcessThatReturnsHasAClockOfItsOwn) {
  for (const bool names_clock : {true, false}) {
    const TestFolder folder;
    Process head(0, 2);
    const auto compare = [&](std::int64_t at, std::int64_t zero) {
      for (int i = 0; i < 8; ++i) {
        const std::int64_t sent = at + kMs * i;
        ClockSample sample{1, sent, sent + kMs / 10 - zero, sent + kMs / 5};
        if (names_clock) sample.zero_ns = zero + 5000 * kMs;
        append_clock(head.clocks, sample);
      }
    };
    for (std::int64_t at = 1000 * kMs; at < 60000 * kMs; at += 1000 * kMs)
      head.add(EventKind::step_done, at, at / (1000 * kMs));
    std::vector<Process> lives;
    for (const std::int32_t part : {0, 1}) {
      const std::int64_t zero = 20000 * kMs * part;
      Process& life = lives.emplace_back(1, 2);
      life.header.part = part;
      life.header.zero_monotonic_ns = zero + 5000 * kMs;
      life.header.zero_realtime_ns = 77777 * kMs;  // wrong
      for (std::int64_t at = zero + 1000 * kMs; at < (part == 0 ? 12000 : 60000) * kMs;
           at += 1000 * kMs)
        life.add(EventKind::step_done, at - zero, at / (1000 * kMs));
      // The second one reads later times than the first one did, too.
      for (const std::int64_t after : {80, 30080})
        if (part == 1 || after == 80) compare(zero + after * kMs, zero);
    }
    for (const Process& process : {head, lives[0], lives[1]}) write(folder, process);
    auto trace = MergedTrace::open(folder.path());
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    const auto records = all(*trace);
    EXPECT_EQ(records.size(), 59U + 11U + 39U);
    for (const TraceRecord& record : records)
      EXPECT_EQ(record.time_ns, (record.step - 1) * 1000 * kMs)
          << "rank " << record.rank << ", names its clock: " << names_clock;
  }
}

// --trace-limit: each segment of the head repeats all samples before it.
TEST(MergedTrace, RepeatedSamplesAreOnce) {
  const TestFolder folder;
  // Its speed changes twice in three bursts, by which each of them is needed.
  const auto remote = [](std::int64_t head) {
    const std::int64_t in_three = head % (180000 * kMs);
    return head + std::min(in_three, 2 * (180000 * kMs - in_three)) / 1000;
  };
  Process worker(1, 2);
  std::string clocks;
  std::int64_t at = 0;
  for (std::int32_t segment = 0; segment < 3; ++segment) {
    Process head(0, 2);
    head.header.segment = segment;
    for (int i = 0; i < 3; ++i, at += 60000 * kMs) {
      // The first burst has the shortest round trip of all.
      const std::int64_t half = kMs * (1 + at / (60000 * kMs)) / 100;
      append_clock(clocks, {1, at, remote(at + half), at + 2 * half});
    }
    head.clocks = clocks;
    head.add(EventKind::step_done, at - 60000 * kMs, segment);
    write(folder, head);
  }
  for (std::int64_t time = 60000 * kMs; time < at - 60000 * kMs; time += 30000 * kMs)
    worker.add(EventKind::step_done, remote(time), 0);
  write(folder, worker);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  std::int64_t time = 60000 * kMs;
  const std::int64_t zero = time;
  for (const TraceRecord& record : all(*trace)) {
    if (record.rank != 1) continue;
    EXPECT_NEAR(static_cast<double>(record.time_ns + zero), static_cast<double>(time), kMs);
    time += 30000 * kMs;
  }
}

TEST(MergedTrace, ProcessesOfOneMachineShareItsClock) {
  const TestFolder folder;
  std::vector<Process> processes{{0, 2}, {1, 2}};
  for (Process& process : processes) {
    process.header.boot = "one";
    process.header.zero_monotonic_ns = process.header.process == 0 ? 100 : 700;
    process.header.zero_realtime_ns = process.header.process * 999999;
  }
  processes[0].add(EventKind::step_done, 1000, 0);
  processes[1].add(EventKind::step_done, 900, 0);
  for (const Process& process : processes) write(folder, process);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  const auto records = all(*trace);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].rank, 0);
  EXPECT_EQ(records[1].time_ns, 500) << "900 + 700 - (1000 + 100)";
}

// ---- records that are missing ----

// A receipt of which the sending was never recorded does not wait for later ones.
TEST(MergedTrace, AReceiptWithoutSendingDoesNotWait) {
  const TestFolder folder;
  std::vector<Process> processes{{0, 2}, {1, 2}};
  // Its first segment, with messages 1 to 99, was removed.
  processes[0].header.segment = 1;
  for (std::uint64_t sequence = 100; sequence < 130; ++sequence)
    processes[0].message(true, static_cast<std::int64_t>(sequence) * 1000 * kMs, 1, sequence);
  processes[1].message(false, 5 * kMs, 0, 3);
  processes[1].add(EventKind::step_done, 6 * kMs, 1);
  // A step that is not sampled: 115 follows 113.
  processes[0].records.erase(processes[0].records.begin() + 14);
  processes[1].message(false, 113001 * kMs, 0, 114);
  processes[1].message(false, 113002 * kMs, 0, 115);  // this clock is wrong
  for (const Process& process : processes) write(folder, process, 3);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  std::map<std::uint64_t, std::int64_t> received;
  std::int64_t step_done = 0;
  for (const TraceRecord& record : all(*trace)) {
    if (record.kind == EventKind::received) received[record.sequence] = record.time_ns;
    if (record.kind == EventKind::step_done) step_done = record.time_ns;
  }
  EXPECT_EQ(received[3], 0);
  EXPECT_EQ(step_done, kMs);
  EXPECT_EQ(received[114], 113001 * kMs - 5 * kMs);
  EXPECT_EQ(received[115], 115000 * kMs - 5 * kMs) << "moved up to its sending";
}

// Receipts that wait for each other, as no run makes them: all records are still returned.
TEST(MergedTrace, ACircleEnds) {
  const TestFolder folder;
  std::vector<Process> processes{{0, 2}, {1, 2}};
  for (Process& process : processes) {
    process.message(false, 10, 1 - process.header.process, 1);
    process.message(true, 20, 1 - process.header.process, 1);
  }
  for (const Process& process : processes) write(folder, process);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(all(*trace).size(), 4U);
}

TEST(MergedTrace, SaysWhatIsMissing) {
  const TestFolder folder;
  Process process(1, 3);
  process.header.sampled = 10;
  process.add(EventKind::step_done, 0, 0);
  TraceFileWriter writer(folder.path(), process.header, 0);
  std::string frames;
  append_records(frames, process.records);
  append_left_out(frames, 5);
  append_pulse(frames, 2500 * kMs);
  ASSERT_TRUE(writer.write(frames).ok());
  std::ofstream(folder.path("process-0002.gvtrace")) << "GV";
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  const auto has = [&](const std::string& part) {
    return std::count_if(trace->missing().begin(), trace->missing().end(),
                         [&](const auto& line) { return line.find(part) != std::string::npos; });
  };
  EXPECT_EQ(has("process 0 has left no trace"), 1);
  EXPECT_EQ(has("process 1 has not closed its trace"), 1);
  EXPECT_EQ(has("its last records are of 2.500 s"), 1);
  EXPECT_EQ(has("5 records were left out"), 1);
  EXPECT_EQ(has("process-0002.gvtrace: it ends before its header"), 1);
  EXPECT_EQ(has("process 2 has left no trace"), 0) << "its file is damaged";
  EXPECT_EQ(has("only every 10th step is recorded"), 1);
  EXPECT_EQ(trace->missing().size(), 5U);
}

// A file that goes while it is read, as of a job that still runs under --trace-limit.
TEST(MergedTrace, AFileThatIsGoneIsANoteNotACrash) {
  const TestFolder folder;
  std::vector<Process> processes{{0, 2}, {1, 2}};
  for (Process& process : processes)
    for (int i = 0; i < 5000; ++i) process.add(EventKind::step_done, i, i);
  for (const Process& process : processes) write(folder, process);
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  std::filesystem::resize_file(folder.path("process-0001.gvtrace"), 10);
  EXPECT_LT(all(*trace).size(), 10000U);
  all(*trace);
  ASSERT_EQ(trace->missing().size(), 1U) << "said once, however often it is read";
  EXPECT_NE(trace->missing()[0].find("process-0001.gvtrace"), std::string::npos);
}

// Two runs of one job, whose files were put together by hand.
TEST(MergedTrace, FilesOfTwoRunsAreRefused) {
  const TestFolder folder;
  for (const std::int32_t number : {0, 1}) {
    Process process(number, 2);
    process.header.run = 7;
    process.add(EventKind::step_done, 0, 0);
    write(folder, process);
  }
  EXPECT_TRUE(MergedTrace::open(folder.path()).ok());
  Process other(1, 2);
  other.header.run = 8;
  other.add(EventKind::step_done, 0, 0);
  write(folder, other);
  const auto trace = MergedTrace::open(folder.path());
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.error().message.find("of different runs"), std::string::npos);
}

// A resumption has a name of its own, and may have other processes.
TEST(MergedTrace, AResumptionInMoreProcessesIsReadWithTheFirstRun) {
  const TestFolder folder;
  Process first(0, 1);
  first.header.run = 7;
  first.header.workers = 2;
  first.header.ranks = {0, 1};
  first.add(EventKind::step_done, 0, 0);
  write(folder, first);
  for (const std::int32_t number : {0, 1}) {
    Process process(number, 2);
    process.header.run = 8;
    process.header.part = number == 0 ? 1 : 0;
    process.add(EventKind::step_done, 10, 1);
    write(folder, process);
  }
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(all(*trace).size(), 3U);
}

// A run may have had no server at its start, and others when it was continued: those count that
// have records.
TEST(MergedTrace, ServersOfLaterWiringsAreRead) {
  const TestFolder folder;
  for (const std::int32_t part : {0, 1}) {
    Process process(0, 1);
    process.header.run = static_cast<std::uint64_t>(7 + part);
    process.header.part = part;
    process.header.workers = 2;
    process.header.ranks = {0, 1};
    process.header.servers = part;
    process.header.spare = 3 - part;
    TraceFileWriter writer(folder.path(), process.header, 0);
    std::string frames;
    for (const Rank rank : {0, 3})
      append_records(frames, {record_of(EventKind::applied, 10 * part, rank, part)});
    ASSERT_TRUE(writer.write(frames).ok());  // not closed: it was killed
  }
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->workers(), 2);
  EXPECT_EQ(trace->servers(), 2) << "ranks 2 and 3";
  EXPECT_EQ(all(*trace).size(), 4U);
}

TEST(MergedTrace, FilesOfTwoJobsAreRefused) {
  const TestFolder folder;
  write(folder, Process(0, 2));
  Process other(1, 3);
  other.add(EventKind::step_done, 0, 0);
  write(folder, other);
  Process first(0, 2);
  first.add(EventKind::step_done, 0, 0);
  write(folder, first);
  const auto trace = MergedTrace::open(folder.path());
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.error().message.find("of different jobs"), std::string::npos);
}

// ---- resumption ----

TEST(MergedTrace, AResumedPartReplacesWhatItUndoes) {
  const TestFolder folder;
  Process first(0, 1), second(0, 1), third(0, 1);
  first.be_of(11, 0, 0);
  second.be_of(22, 1, 10000);
  third.be_of(33, 2, 20000);
  for (Step step = 0; step < 30; ++step) {
    first.add(EventKind::step_done, 100 * step, step);
    if (step == 9) first.add_mark(EventKind::cut, 950, 1, 11);
    if (step == 19) first.add_mark(EventKind::cut, 1950, 2, 11);
  }
  second.add_mark(EventKind::resumed, 0, 1, 11);  // not from the newest
  for (Step step = 10; step < 15; ++step) {
    second.add(EventKind::step_done, 100 * step, step);
    if (step == 12) second.add_mark(EventKind::cut, 1250, 1, 22);  // of this run
  }
  append_change(first.clocks, {500, {{"lr", "1"}}});
  append_change(first.clocks, {500, {{"lr", "1"}}});   // as in each file of the process
  append_change(first.clocks, {1500, {{"lr", "2"}}});  // after the cut that the second resumes from
  append_change(second.clocks, {200, {{"lr", "3"}}});
  third.add_mark(EventKind::resumed, 0, 1, 22);
  for (Step step = 13; step < 20; ++step) third.add(EventKind::step_done, 100 * step, step);
  for (const std::size_t frame : {1U, 4U, 7U, 1000U}) {
    for (const Process* process : {&first, &second, &third}) write(folder, *process, frame);
    auto trace = MergedTrace::open(folder.path());
    ASSERT_TRUE(trace.ok());
    std::vector<Step> steps;
    std::int64_t before = -1;
    for (const TraceRecord& record : all(*trace)) {
      EXPECT_GE(record.time_ns, before);
      before = record.time_ns;
      if (record.kind == EventKind::step_done) steps.push_back(record.step);
    }
    std::vector<Step> each_once(20);
    for (Step step = 0; step < 20; ++step) each_once[static_cast<std::size_t>(step)] = step;
    EXPECT_EQ(steps, each_once) << "frames of " << frame;
    const std::vector<SettingsChange> changes{{500, {{"lr", "1"}}}, {10200, {{"lr", "3"}}}};
    EXPECT_EQ(trace->changes(), changes);
  }
}

std::vector<Step> steps_of(Rank rank, const std::vector<TraceRecord>& records) {
  std::vector<Step> steps;
  for (const TraceRecord& record : records)
    if (record.rank == rank && record.kind == EventKind::step_done) steps.push_back(record.step);
  return steps;
}

std::vector<Step> steps_until(Step end) {
  std::vector<Step> steps;
  for (Step step = 0; step < end; ++step) steps.push_back(step);
  return steps;
}

// The run that continues from the cut has no rank 1: its steps after the cut did not happen either.
TEST(MergedTrace, AResumptionWithFewerRanksUndoesTheStepsOfTheOthers) {
  for (const bool closed : {true, false}) {
    const TestFolder folder;
    Process head(0, 2), other(1, 2), later(0, 1);
    head.be_of(11, 0, 0);
    other.be_of(11, 0, 0);
    later.be_of(22, 1, 2000);
    for (Step step = 0; step < 15; ++step)
      for (Process* process : {&head, &other}) {
        process->add(EventKind::step_done, 100 * step, step);
        if (step == 9) process->add_mark(EventKind::cut, 950, 1, 11);
      }
    later.add_mark(EventKind::resumed, 0, 1, 11);
    for (Step step = 10; step < 20; ++step) later.add(EventKind::step_done, 100 * step, step);
    write(folder, head);
    write(folder, later);
    closed ? write(folder, other) : write_open(folder, other, 1400);
    auto trace = MergedTrace::open(folder.path());
    ASSERT_TRUE(trace.ok());
    const auto records = all(*trace);
    EXPECT_EQ(steps_of(0, records), steps_until(20));
    EXPECT_EQ(steps_of(1, records), steps_until(10));
    EXPECT_TRUE(trace->missing().empty()) << "a later run has done again what it lacks";
  }
}

void expect_one_open_trace(const TestFolder& folder, std::int32_t process) {
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->missing().size(), 1U);
  const std::string note = "process " + std::to_string(process) + " has not closed its trace";
  EXPECT_NE(trace->missing()[0].find(note), std::string::npos);
}

// A process that is killed, and returns to the same run, has lost its last records.
TEST(MergedTrace, AReturnDoesNotExcuseAnOpenTrace) {
  const TestFolder folder;
  Process head(0, 2), lost(1, 2), back(1, 2);
  head.be_of(11, 0, 0);
  lost.be_of(11, 0, 0);
  back.be_of(11, 1, 600);
  for (Process* process : {&head, &lost, &back}) process->add(EventKind::step_done, 100, 1);
  write(folder, head);
  write(folder, back);
  write_open(folder, lost);
  expect_one_open_trace(folder, 1);
}

// A process that was lost long before the cut of the next run: nobody does again what it lacks.
TEST(MergedTrace, AResumptionDoesNotExcuseAnEarlierLoss) {
  const TestFolder folder;
  Process head(0, 2), lost(1, 2), later(0, 1);
  head.be_of(11, 0, 0);
  lost.be_of(11, 0, 0);
  later.be_of(22, 1, 2000);
  for (Step step = 0; step < 15; ++step) {
    head.add(EventKind::step_done, 100 * step, step);
    if (step < 5) lost.add(EventKind::step_done, 100 * step, step);
    if (step == 9) head.add_mark(EventKind::cut, 950, 1, 11);
  }
  later.add_mark(EventKind::resumed, 0, 1, 11);
  later.add(EventKind::step_done, 1000, 10);
  write(folder, head);
  write(folder, later);
  write_open(folder, lost);
  expect_one_open_trace(folder, 1);
}

// Process 1 is lost in run 11 and returns to it, in a second part. Each of the processes takes 15
// steps, a cut after the tenth.
void write_run_with_a_return(const TestFolder& folder) {
  Process head(0, 2), lost(1, 2), back(1, 2);
  head.be_of(11, 0, 0);
  lost.be_of(11, 0, 0);
  back.be_of(11, 1, 600);
  for (Step step = 0; step < 15; ++step) {
    head.add(EventKind::step_done, 100 * step, step);
    if (step < 5) lost.add(EventKind::step_done, 100 * step, step);
    if (step > 6) back.add(EventKind::step_done, 100 * step - 600, step);
    if (step != 9) continue;
    head.add_mark(EventKind::cut, 950, 1, 11);
    back.add_mark(EventKind::cut, 350, 1, 11);
  }
  append_change(head.clocks, {500, {{"lr", "1"}}});
  append_change(head.clocks, {1200, {{"lr", "2"}}});  // after the cut
  for (const Process& process : {head, lost, back}) write(folder, process);
}

// The run after it has one process for both ranks: the part of that process is the second, as was
// the last one of the process that had rank 1.
TEST(MergedTrace, ALaterRunFollowsAReturnInAnotherProcess) {
  const TestFolder folder;
  write_run_with_a_return(folder);
  TraceHeader header = Process(0, 1).header;
  header.run = 22;
  header.part = 1;
  header.zero_monotonic_ns = header.zero_realtime_ns = 10000;
  header.workers = 2;
  header.ranks = {0, 1};
  TraceFileWriter writer(folder.path(), header, 0);
  std::string frames;
  append_change(frames, {200, {{"lr", "3"}}});
  for (const Rank rank : {0, 1}) {
    std::vector<TraceRecord> records{record_of(EventKind::resumed, 0, rank, 10)};
    records[0].operation = 1;
    records[0].sequence = 11;
    for (Step step = 10; step < 20; ++step)
      records.push_back(record_of(EventKind::step_done, 100 * step, rank, step));
    append_records(frames, records);
  }
  ASSERT_TRUE(writer.write(frames).ok());
  ASSERT_TRUE(writer.close().ok());
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto records = all(*trace);
  EXPECT_EQ(steps_of(0, records), steps_until(20));
  std::vector<Step> steps = steps_until(20);
  steps.erase(steps.begin() + 5, steps.begin() + 7);  // while it was lost
  EXPECT_EQ(steps_of(1, records), steps);
  for (std::size_t i = 1; i < records.size(); ++i)
    EXPECT_EQ(records[i].time_ns < 10000,
              records[i].kind != EventKind::resumed && records[i].step < 10)
        << i;
  const std::vector<SettingsChange> changes{{500, {{"lr", "1"}}}, {10200, {{"lr", "3"}}}};
  EXPECT_EQ(trace->changes(), changes);
}

// With the same processes: the third part of process 1 is of the second run, as the second of
// process 0, and undoes nothing there.
TEST(MergedTrace, AChangeOfARunAfterAReturnIsKept) {
  const TestFolder folder;
  write_run_with_a_return(folder);
  for (const std::int32_t number : {0, 1}) {
    Process process(number, 2);
    process.be_of(22, 1 + number, 10000);
    process.add_mark(EventKind::resumed, 0, 1, 11);
    for (Step step = 10; step < 20; ++step) process.add(EventKind::step_done, 100 * step, step);
    if (number == 0) append_change(process.clocks, {200, {{"lr", "3"}}});
    write(folder, process);
  }
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(steps_of(0, all(*trace)), steps_until(20));
  const std::vector<SettingsChange> changes{{500, {{"lr", "1"}}}, {10200, {{"lr", "3"}}}};
  EXPECT_EQ(trace->changes(), changes);
}

// Two runs in one process, a third one in two: the first part of process 1 is of that.
TEST(MergedTrace, ANewProcessOfALaterRunComesAfterTheEarlierRuns) {
  const TestFolder folder;
  for (const std::int32_t part : {0, 1, 2}) {
    for (const Rank rank : {0, 1}) {
      Process process(part == 2 ? rank : 0, part == 2 ? 2 : 1);
      process.be_of(std::uint64_t{11} * static_cast<std::uint64_t>(part + 1),
                    process.header.process == 0 ? part : 0, 10000 * part);
      process.header.workers = 2;
      process.header.ranks = {rank};
      process.header.segment = part == 2 ? 0 : rank;
      if (part > 0)
        process.add_mark(EventKind::resumed, 0, 1, std::uint64_t{11} * static_cast<unsigned>(part));
      for (Step step = 5 * part; step < 5 * part + 7; ++step) {
        process.add(EventKind::step_done, 100 * (step - 5 * part), step);
        if (step == 5 * part + 4) process.add_mark(EventKind::cut, 450, 1, process.header.run);
      }
      write(folder, process);
    }
  }
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto records = all(*trace);
  for (const Rank rank : {0, 1}) EXPECT_EQ(steps_of(rank, records), steps_until(17)) << rank;
}

// ---- size ----

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(MergedTrace, StreamsAMillionRecordsInLittleMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  constexpr Rank kRanks = 8;
  constexpr std::int64_t kOfRank = 125000;
  const TestFolder folder;
  TraceHeader header;
  header.workers = kRanks;
  for (Rank rank = 0; rank < kRanks; ++rank) header.ranks.push_back(rank);
  TraceFileWriter writer(folder.path(), header, 0);
  std::vector<TraceRecord> records;
  for (std::int64_t i = 0; i < kOfRank; i += 500)
    for (Rank rank = 0; rank < kRanks; ++rank) {
      records.clear();
      for (std::int64_t j = i; j < i + 500; ++j)
        records.push_back(record_of(EventKind::step_done, 1000 * j + rank, rank, j));
      std::string frame;
      append_records(frame, records);
      ASSERT_TRUE(writer.write(frame).ok());
    }
  ASSERT_TRUE(writer.close().ok());
  const std::int64_t before = resident_bytes();
  auto trace = MergedTrace::open(folder.path());
  ASSERT_TRUE(trace.ok());
  std::int64_t count = 0, most = 0, now = 0;
  while (const TraceRecord* record = trace->next()) {
    ASSERT_GE(record->time_ns, now);
    now = record->time_ns;
    if (++count % 50000 == 0) most = std::max(most, resident_bytes());
  }
  EXPECT_EQ(count, kRanks * kOfRank);
  EXPECT_EQ(trace->records(), static_cast<std::uint64_t>(count));
  EXPECT_LT(most - before, 20 << 20) << "a list of all records takes 150 MB";
}

}  // namespace merged_trace_test
}  // namespace grapevine
