// Blame of small traces, to the millisecond, and of traces with gaps.
#include "apps/trace/blame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "apps/trace/blame_report.hpp"
#include "tests/apps/trace/simulated_run.hpp"

namespace grapevine::blame_test {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// Usual times are the middles of buckets of 1/16.
constexpr double kNear = 1.0 * kMs;

// Records of a run in the order of their times, times in milliseconds.
class TraceText {
 public:
  explicit TraceText(std::int32_t workers, std::int32_t servers = 0) {
    layout_.workers = workers;
    layout_.servers = servers;
    for (Rank rank = 0; rank < layout_.ranks(); ++rank) {
      layout_.process_of.push_back(rank);
      layout_.host_of.push_back(0);
    }
    next_.resize(static_cast<std::size_t>(layout_.ranks()), 1);
  }

  void add(std::int64_t ms, EventKind kind, Rank rank, Step step, std::int64_t duration_ms = 0) {
    TraceRecord record;
    record.time_ns = ms * kMs;
    record.kind = kind;
    record.rank = rank;
    record.step = step;
    record.duration_ns = duration_ms * kMs;
    records_.push_back(record);
  }

  void compute(std::int64_t from_ms, std::int64_t to_ms, Rank rank, Step step,
               std::int64_t data_ms = 0) {
    add(from_ms, EventKind::asked, rank, step);
    add(to_ms, EventKind::produced, rank, step, to_ms - from_ms - data_ms);
    if (data_ms > 0) add(to_ms, EventKind::data_wait, rank, step, data_ms);
  }

  // Returns the number of the message.
  std::uint64_t message(std::int64_t from_ms, std::int64_t to_ms, Rank from, Rank to,
                        std::int64_t operation, PayloadKind payload = PayloadKind::chunk) {
    const std::uint64_t sequence = next_[static_cast<std::size_t>(from)]++;
    add(from_ms, EventKind::sent, from, operation);
    describe(to, sequence, operation, payload);
    add(to_ms, EventKind::received, to, operation);
    describe(from, sequence, operation, payload);
    return sequence;
  }

  void wait(std::int64_t from_ms, std::int64_t to_ms, Rank rank, Step step, Rank peer,
            std::uint64_t sequence) {
    add(from_ms, EventKind::wait_begin, rank, step);
    add(to_ms, EventKind::wait_end, rank, step);
    records_.back().peer = peer;
    records_.back().sequence = sequence;
    add(to_ms, EventKind::step_done, rank, step);
  }

  void pause(std::int32_t process, std::int64_t from_ms, std::int64_t to_ms) {
    layout_.pauses.push_back({process, {from_ms * kMs, to_ms * kMs}});
  }

  BlameReport blame(BlameQuestion question = {}) {
    // What a handler does follows its record: both have the same time, and stay in their order.
    std::stable_sort(records_.begin(), records_.end(),
                     [](const TraceRecord& a, const TraceRecord& b) {
                       return std::pair(a.time_ns, order(a)) < std::pair(b.time_ns, order(b));
                     });
    Blame blame(layout_, question);
    for (const TraceRecord& record : records_) blame.learn(record);
    for (const TraceRecord& record : records_) blame.judge(record);
    return blame.report();
  }

  std::vector<TraceRecord>& records() { return records_; }

 private:
  // Within one handler of these traces.
  static int order(const TraceRecord& record) {
    switch (record.kind) {
      case EventKind::produced:
      case EventKind::received:
        return 0;
      case EventKind::data_wait:
        return 1;
      case EventKind::asked:
        return 4;
      default:
        return 2;
    }
  }

  void describe(Rank peer, std::uint64_t sequence, std::int64_t operation, PayloadKind payload) {
    TraceRecord& record = records_.back();
    record.peer = peer;
    record.sequence = sequence;
    record.operation = operation;
    record.payload = payload;
    record.index = payload == PayloadKind::chunk ? 3 : -1;
  }

  RunLayout layout_;
  std::vector<TraceRecord> records_;
  std::vector<std::uint64_t> next_;
};

// What of a step is different from 8 ms of computing and 1 ms on each link.
struct Step9 {
  std::int64_t compute_0 = 8, data_0 = 0, link_0_1 = 1, link_1_2 = 1;
};

// 0 -> 1 -> 2 in each of 20 steps, of 20 ms; step 9 begins at 180 ms and lasts as long as it must.
TraceText chain(const Step9& other, const Step9& usual = {}) {
  TraceText trace(3);
  std::int64_t begin = 0;
  for (Step step = 0; step < 20; ++step) {
    const Step9 times = step == 9 ? other : usual;
    const std::int64_t computed = begin + times.compute_0, at_1 = computed + times.link_0_1,
                       at_2 = at_1 + times.link_1_2;
    trace.compute(begin, computed, 0, step, times.data_0);
    trace.compute(begin, begin + 8, 1, step);
    trace.compute(begin, begin + 8, 2, step);
    const std::uint64_t first = trace.message(computed, at_1, 0, 1, step);
    trace.add(computed, EventKind::step_done, 0, step);
    trace.wait(begin + 8, at_1, 1, step, 0, first);
    const std::uint64_t second = trace.message(at_1, at_2, 1, 2, step);
    trace.wait(begin + 8, at_2, 2, step, 1, second);
    begin += std::max<std::int64_t>(20, at_2 - begin);
  }
  return trace;
}

const Culprit& only_culprit(const BlameReport& report) {
  static const Culprit none{CulpritKind::compute, -7, -7, 0, 0, 0, false, 0, 0, {}};
  EXPECT_EQ(report.culprits.size(), 1u) << text_of(report);
  return report.culprits.size() == 1 ? report.culprits.front() : none;
}

// ---- chains ----

TEST(Blame, ANormalRunHasNoCulprit) {
  const BlameReport report = chain({}).blame();
  EXPECT_TRUE(report.culprits.empty()) << text_of(report);
  EXPECT_EQ(report.waits, 40);
  EXPECT_EQ(report.waited_ns, 20 * (1 + 2) * kMs);
}

TEST(Blame, ASlowGradientIsTheFaultOfItsRankOverTwoMessages) {
  const BlameReport report = chain({505, 0, 1, 1}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::compute);
  EXPECT_EQ(culprit.rank, 0);
  EXPECT_EQ(culprit.peer, -1);
  // Ranks 1 and 2 wait from 8 ms; 497 ms until 505 ms are more than usual.
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 2 * 497. * kMs, 2 * kNear);
  EXPECT_NEAR(static_cast<double>(culprit.own_ns), 497. * kMs, kNear);
  EXPECT_EQ(culprit.stalls, 1);
  EXPECT_FALSE(culprit.always);
  EXPECT_EQ(culprit.worst.length_ns(), 498 * kMs);
  EXPECT_NEAR(culprit.share,
              static_cast<double>(culprit.waited_ns) / static_cast<double>(report.waited_ns), 1e-9);
}

TEST(Blame, TheSentenceOfAStepFollowsTheChain) {
  BlameQuestion question;
  question.about = BlameQuestion::About::step;
  question.step = 9;
  const BlameReport report = chain({505, 0, 1, 1}).blame(question);
  ASSERT_EQ(report.steps.size(), 3u);
  EXPECT_EQ(sentence_of(report.steps[0]),
            "rank 0, step 9: 517 ms (usual 20 ms): computed 505 ms (usual 8.0 ms)");
  EXPECT_EQ(sentence_of(report.steps[2]),
            "rank 2, step 9: 517 ms (usual 20 ms): waited 499 ms for chunk 3 of operation 9 from "
            "rank 1, which waited for chunk 3 of operation 9 from rank 0, which computed 505 ms "
            "(usual 8.0 ms)");
}

// The sentence is whole in it, but for its line ends.
TEST(Blame, TheTextHasLinesOfAtMost118Columns) {
  BlameQuestion question;
  question.about = BlameQuestion::About::step;
  question.step = 9;
  const BlameReport report = chain({505, 0, 1, 1}).blame(question);
  ASSERT_GT(sentence_of(report.steps[2]).size(), 118u);
  const std::string all = text_of(chain({505, 0, 1, 1}).blame()), of_step = text_of(report);
  std::istringstream lines(all + of_step);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 118u) << line;
  std::string joined = of_step;
  for (std::size_t at = 0; (at = joined.find("\n  ", at)) != std::string::npos;)
    joined.replace(at, 3, " ");
  EXPECT_NE(joined.find(sentence_of(report.steps[2]) + "\n"), std::string::npos) << of_step;
}

TEST(Blame, ALateBatchIsTheFaultOfTheData) {
  const BlameReport report = chain({505, 497, 1, 1}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::data);
  EXPECT_EQ(culprit.rank, 0);
}

TEST(Blame, ALateMessageIsTheFaultOfItsLink) {
  const BlameReport report = chain({8, 0, 1, 400}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::link);
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.peer, 2);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 399. * kMs, kNear);
  EXPECT_EQ(culprit.own_ns, 0);
}

TEST(Blame, AShorterExcessThanTheLeastIsNobodysFault) {
  EXPECT_TRUE(chain({57, 0, 1, 1}).blame().culprits.empty());
  EXPECT_FALSE(chain({60, 0, 1, 1}).blame().culprits.empty());
  BlameQuestion question;
  question.least_ns = 20 * kMs;
  EXPECT_FALSE(chain({57, 0, 1, 1}).blame(question).culprits.empty());
}

// The waits of later steps, whose paths also lead back to the stall, are as long as ever.
TEST(Blame, UsualWaitsAfterAStallAreNotDueToIt) {
  const BlameReport report = chain({505, 0, 15, 15}, {8, 0, 15, 15}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 2 * 497. * kMs, 2 * kNear);
}

// Its only message has no time of its own to be compared with, but those of the other links.
TEST(Blame, ALinkThatIsUsedOnceIsComparedWithTheOthers) {
  TraceText trace = chain({});
  const auto message = trace.message(5000, 5400, 2, 0, 20);
  trace.wait(5000, 5400, 0, 20, 2, message);
  const BlameReport report = trace.blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::link);
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(culprit.peer, 0);
}

// Rank 1 begins 400 ms after the others: the message to it was not slow.
TEST(Blame, ARankThatBeginsLaterIsNotASlowLink) {
  TraceText trace(3);
  for (Step step = 0; step < 20; ++step) {
    const std::int64_t begin = 1000 * step, first = begin + (step == 0 ? 400 : 9);
    trace.message(begin + 8, first, 0, 1, step);
    const auto second = trace.message(first, first + 1, 1, 2, step);
    trace.wait(begin + 8, first + 1, 2, step, 1, second);
  }
  const BlameReport report = trace.blame();
  EXPECT_TRUE(report.culprits.empty()) << text_of(report);
}

// ---- pauses ----

TEST(Blame, AGradientMayBePausedAndLate) {
  TraceText trace = chain({705, 0, 1, 1});
  trace.pause(0, 200, 400);
  const BlameReport report = trace.blame();
  ASSERT_EQ(report.culprits.size(), 2u) << text_of(report);
  EXPECT_EQ(report.culprits[0].kind, CulpritKind::compute);
  EXPECT_NEAR(static_cast<double>(report.culprits[0].own_ns), 497. * kMs, kNear);
  EXPECT_EQ(report.culprits[1].kind, CulpritKind::pause);
  EXPECT_EQ(report.culprits[1].own_ns, 200 * kMs);
  EXPECT_EQ(report.culprits[1].waited_ns, 400 * kMs);
}

// The message reached a paused process: neither the link nor the sender is to blame.
TEST(Blame, APauseOfTheReceiverIsNotTheFaultOfTheLink) {
  TraceText trace = chain({8, 0, 1, 400});
  trace.pause(2, 180, 588);
  const BlameReport report = trace.blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::pause);
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(culprit.waited_ns, (588 - 189) * kMs);  // from the begin of the message's way
}

TEST(Blame, APauseOfAnUninvolvedProcessIsNobodysFault) {
  TraceText trace = chain({});
  trace.pause(7, 100, 400);
  EXPECT_TRUE(trace.blame().culprits.empty());
}

// ---- servers ----

// Clients 0 and 1 ask server 2, client 0 first. 20 rounds of 20 ms.
struct Turn {
  std::int64_t kept = 0, in_turn = 1;  // of the first client in round 9
};

TraceText turns(const Turn& other) {
  TraceText trace(2, 1);
  std::int64_t begin = 0;
  for (Step step = 0; step < 20; ++step) {
    const Turn turn = step == 9 ? other : Turn{};
    const std::int64_t half = turn.kept / 2;
    trace.compute(begin, begin + 8, 0, step);
    trace.compute(begin, begin + 8 + half, 1, step);
    const std::int64_t asked = begin + 9, granted = asked + turn.kept, first = granted + 1,
                       committed = first + turn.in_turn;
    trace.message(begin + 8, asked, 0, 2, step, PayloadKind::ask);
    const auto grant = trace.message(granted, first, 2, 0, step, PayloadKind::grant);
    trace.wait(begin + 8, first, 0, step, 2, grant);
    trace.message(begin + 8 + half, asked + 1 + half, 1, 2, step, PayloadKind::ask);
    trace.message(first, committed, 0, 2, step, PayloadKind::commit);
    const auto next = trace.message(committed, committed + 1, 2, 1, step, PayloadKind::grant);
    trace.wait(begin + 8 + half, committed + 1, 1, step, 2, next);
    trace.message(committed + 1, committed + 2, 1, 2, step, PayloadKind::commit);
    begin += std::max<std::int64_t>(20, committed + 5 - begin);
  }
  return trace;
}

// The other client asks in the meantime, 40 ms later: that is not why the grant was sent then.
TEST(Blame, AServerThatKeepsItsGrantBackIsToBlameForAllWhoWait) {
  const BlameReport report = turns({80, 1}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::server);
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), (80. + 39) * kMs, 2 * kNear);
}

// Client 1's request is late, and meanwhile client 0's commit: each is to blame for its own part.
TEST(Blame, UntilARequestHasArrivedItsOwnPathCounts) {
  TraceText trace(2, 1);
  std::int64_t begin = 0;
  for (Step step = 0; step < 20; ++step) {
    const bool is_late = step == 9;
    trace.compute(begin, begin + 8, 0, step);
    trace.compute(begin, begin + 8, 1, step);
    const std::int64_t asked = begin + 9, first = asked + 1,
                       committed = first + (is_late ? 300 : 1),
                       asked_1 = asked + (is_late ? 201 : 1);
    trace.message(begin + 8, asked, 0, 2, step, PayloadKind::ask);
    const auto grant = trace.message(asked, first, 2, 0, step, PayloadKind::grant);
    trace.wait(begin + 8, first, 0, step, 2, grant);
    trace.message(begin + 8, asked_1, 1, 2, step, PayloadKind::ask);
    trace.message(first, committed, 0, 2, step, PayloadKind::commit);
    const auto next = trace.message(committed, committed + 1, 2, 1, step, PayloadKind::grant);
    trace.wait(begin + 8, committed + 1, 1, step, 2, next);
    trace.message(committed + 1, committed + 2, 1, 2, step, PayloadKind::commit);
    begin += std::max<std::int64_t>(20, committed + 5 - begin);
  }
  const BlameReport report = trace.blame();
  ASSERT_EQ(report.culprits.size(), 2u) << text_of(report);
  EXPECT_EQ(report.culprits[0].rank, 1);  // its request: 200 ms
  EXPECT_EQ(report.culprits[0].peer, 2);
  EXPECT_NEAR(static_cast<double>(report.culprits[0].waited_ns), 200. * kMs, 2 * kNear);
  EXPECT_EQ(report.culprits[1].rank, 0);  // its commit: the 100 ms after that
  EXPECT_EQ(report.culprits[1].peer, 2);
  EXPECT_NEAR(static_cast<double>(report.culprits[1].waited_ns), 100. * kMs, 2 * kNear);
}

TEST(Blame, AClientWhoseCommitIsLateIsToBlameForTheNext) {
  const BlameReport report = turns({0, 300}).blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::link);
  EXPECT_EQ(culprit.rank, 0);
  EXPECT_EQ(culprit.peer, 2);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 299. * kMs, kNear);
}

// ---- long handlers ----

// Two handlers of 100 ms in succession: the message on its way meanwhile has waited for both.
TEST(Blame, AReceiverThatIsBusyIsToBlameAndNotTheLink) {
  TraceText trace(2);
  for (Step step = 0; step < 20; ++step) {
    const std::int64_t begin = 300 * step, busy = step == 9 ? 100 : 0;
    trace.compute(begin, begin + 8, 0, step);
    trace.compute(begin, begin + 8, 1, step);
    const std::int64_t first = begin + 9, second = first + busy + 1, third = second + busy + 1;
    trace.message(begin + 8, first, 0, 1, step);
    trace.message(first + busy, first + busy + 1, 1, 0, step);  // the handler's last record
    trace.message(begin + 8, second, 0, 1, step);
    trace.message(second + busy, second + busy + 2, 1, 0, step);
    const auto last = trace.message(begin + 8, third, 0, 1, step);
    trace.wait(begin + 8, third, 1, step, 0, last);
  }
  const BlameReport report = trace.blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::compute);
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 200. * kMs, 2 * kNear);
}

// ---- levels ----

// Two groups, of heads 0 and 2: rank 3 gives its gradient to rank 2, the heads exchange, and rank 0
// gives rank 1 the result.
TEST(Blame, AMemberOfAnotherGroupIsToBlameOverBothHeads) {
  TraceText trace(4);
  std::int64_t begin = 0;
  for (Step step = 0; step < 20; ++step) {
    const std::int64_t computed = begin + (step == 9 ? 308 : 8);
    for (Rank rank = 0; rank < 3; ++rank) trace.compute(begin, begin + 8, rank, step);
    trace.compute(begin, computed, 3, step);
    const auto up = trace.message(computed, computed + 1, 3, 2, step);
    trace.wait(begin + 8, computed + 1, 2, step, 3, up);
    const auto across = trace.message(computed + 1, computed + 2, 2, 0, step);
    trace.wait(begin + 8, computed + 2, 0, step, 2, across);
    const auto down =
        trace.message(computed + 2, computed + 3, 0, 1, step, PayloadKind::parameters);
    trace.wait(begin + 8, computed + 3, 1, step, 0, down);
    begin += std::max<std::int64_t>(20, computed + 5 - begin);
  }
  const BlameReport report = trace.blame();
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::compute);
  EXPECT_EQ(culprit.rank, 3);
  EXPECT_NEAR(static_cast<double>(culprit.waited_ns), 3 * 300. * kMs, 3 * kNear);
}

// ---- a resumed run ----

// The records after step 9, of `ranks` ranks whose steps take `step_ms`, a night later.
void resume_later(TraceText& trace, Rank ranks, std::int64_t step_ms, std::int64_t night_ms) {
  const std::int64_t cut_ns = 10 * step_ms * kMs;
  for (TraceRecord& record : trace.records())
    if (record.time_ns > cut_ns || (record.time_ns == cut_ns && record.kind == EventKind::asked))
      record.time_ns += night_ms * kMs;
  for (Rank rank = 0; rank < ranks; ++rank)
    trace.add(10 * step_ms + night_ms, EventKind::resumed, rank, 10);
}

TEST(Blame, TheTimeBetweenTwoRunsIsNotOfTheRun) {
  const Step9 slow{58, 0, 1, 1};
  const BlameReport whole = chain(slow, slow).blame();
  TraceText trace = chain(slow, slow);
  resume_later(trace, 3, 60, 12 * 3'600'000);
  const BlameReport report = trace.blame();
  EXPECT_TRUE(only_culprit(whole).always);
  const Culprit& culprit = only_culprit(report);
  EXPECT_EQ(culprit.kind, CulpritKind::compute);
  EXPECT_EQ(culprit.rank, 0);
  EXPECT_TRUE(culprit.always);
  EXPECT_EQ(report.run_ns, whole.run_ns);
}

// ---- what it answers ----

TEST(Blame, TheSlowestStepsComeFirst) {
  BlameQuestion question;
  question.about = BlameQuestion::About::slowest;
  question.most_steps = 3;
  const BlameReport report = chain({505, 0, 1, 1}).blame(question);
  ASSERT_EQ(report.steps.size(), 3u);
  EXPECT_EQ(report.steps[0].step, 9);
  EXPECT_GE(report.steps[0].length_ns(), report.steps[1].length_ns());
  EXPECT_GE(report.steps[1].length_ns(), report.steps[2].length_ns());
}

TEST(Blame, TheJsonHasTheKeysOfTheInterface) {
  const nlohmann::json json = json_of(chain({505, 0, 1, 1}).blame());
  ASSERT_EQ(json.at("culprits").size(), 1u);
  const nlohmann::json& culprit = json.at("culprits").at(0);
  EXPECT_EQ(culprit.at("kind"), "compute");
  EXPECT_EQ(culprit.at("rank"), 0);
  EXPECT_EQ(culprit.at("peer"), -1);
  EXPECT_NEAR(culprit.at("seconds").get<double>(), 0.994, 0.002);
  EXPECT_GT(culprit.at("share").get<double>(), 0.9);
  EXPECT_LE(culprit.at("share").get<double>(), 1.0);
}

TEST(Blame, WithoutRecordsNothingIsBlamed) {
  for (const auto about :
       {BlameQuestion::About::all, BlameQuestion::About::slowest, BlameQuestion::About::step}) {
    BlameQuestion question;
    question.about = about;
    const BlameReport report = TraceText(2).blame(question);
    EXPECT_TRUE(report.culprits.empty());
    EXPECT_FALSE(text_of(report).empty());
    EXPECT_TRUE(json_of(report).is_object());
  }
}

// ---- traces with gaps ----

// The record of the receipt is lost, but not that of the wait.
TEST(Blame, AWaitNamesTheMessageThatEndedItWithoutItsReceipt) {
  TraceText trace = chain({8, 0, 1, 400});
  auto& records = trace.records();
  const auto lost = std::find_if(records.begin(), records.end(), [](const TraceRecord& record) {
    return record.kind == EventKind::received && record.rank == 2 && record.operation == 9;
  });
  ASSERT_NE(lost, records.end());
  records.erase(lost);
  EXPECT_EQ(only_culprit(trace.blame()).kind, CulpritKind::link);
}

// Records at random are missing, are cut off at the end of a rank, or have wrong numbers.
TEST(Blame, GapsAndWrongNumbersInATraceDoNoHarm) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 rng(seed);
    SimulationSettings settings;
    settings.exchange = static_cast<Exchange>(seed % 5);
    settings.seed = seed;
    settings.stalls = {{CulpritKind::compute, 1, -1, 20, 500 * kMs}};
    SimulatedRun run(settings);
    run.run();
    std::vector<std::int64_t> until(8);
    for (auto& of_rank : until)
      of_rank = static_cast<std::int64_t>(rng() % 2'000'000'000 + 100'000'000);
    BlameQuestion question;
    question.about = static_cast<BlameQuestion::About>(seed % 3);
    question.step = 20;
    Blame blame(run.layout(), question);
    std::vector<TraceRecord> kept;
    for (TraceRecord record : run.records()) {
      if (rng() % 10 == 0 || record.time_ns > until[static_cast<std::size_t>(record.rank)])
        continue;
      if (rng() % 50 == 0) record.peer = static_cast<Rank>(rng() % 20) - 5;
      if (rng() % 50 == 0) record.sequence = rng();
      if (rng() % 50 == 0) record.duration_ns = static_cast<std::int64_t>(rng());
      if (rng() % 50 == 0) record.payload = static_cast<PayloadKind>(rng() % kLastPayloadKind);
      if (rng() % 50 == 0) record.rank = static_cast<Rank>(rng() % 8);
      if (rng() % 50 == 0) record.kind = static_cast<EventKind>(1 + rng() % kLastEventKind);
      kept.push_back(record);
    }
    for (const TraceRecord& record : kept) blame.learn(record);
    for (const TraceRecord& record : kept) blame.judge(record);
    const BlameReport report = blame.report();
    EXPECT_FALSE(text_of(report).empty()) << "seed " << seed;
    EXPECT_FALSE(json_of(report).dump().empty()) << "seed " << seed;
    for (const Culprit& culprit : report.culprits)
      EXPECT_LE(culprit.share, 1 + 1e-9) << "seed " << seed;
  }
}

}  // namespace
}  // namespace grapevine::blame_test
