#include "apps/trace/provenance/provenance.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "apps/trace/provenance/provenance_report.hpp"
#include "messages/trace/merged_trace.hpp"
#include "tests/apps/trace/trace_folder.hpp"

namespace grapevine {
namespace provenance_test {

using testing_apps::TraceFolder;

Expected<Provenance> why(const TraceFolder& folder, Rank rank, Step step) {
  folder.write();
  auto trace = MergedTrace::open(folder.path());
  if (!trace) return trace.error();
  return find_provenance({rank, step}, trace->workers(), trace->ranks(), [&](const auto& take) {
    trace->rewind();
    while (const TraceRecord* record = trace->next()) take(*record);
  });
}

Provenance found(const TraceFolder& folder, Rank rank, Step step) {
  auto provenance = why(folder, rank, step);
  EXPECT_TRUE(provenance.ok()) << provenance.error().message;
  return provenance ? *provenance : Provenance{};
}

std::string error(const TraceFolder& folder, Rank rank, Step step) {
  const auto provenance = why(folder, rank, step);
  EXPECT_FALSE(provenance.ok());
  if (provenance) return "";
  EXPECT_EQ(provenance.error().code, Errc::bad_input);
  return provenance.error().message;
}

// A worker's gradient: it was asked for at `at`, computed for 100 ns, and arrived 1 ns later.
void add_gradient(TraceFolder& folder, Rank rank, Step step, Version version, std::int64_t at) {
  folder.add(EventKind::asked, at, rank, step).version = version;
  folder.add(EventKind::data_wait, at + 100, rank, step).duration_ns = 7;
  folder.add(EventKind::produced, at + 101, rank, step).duration_ns = 100;
}

void expect_gradient(const TracedGradient& gradient, Rank worker, Step step, Version version,
                     std::int64_t at) {
  EXPECT_EQ(gradient.worker, worker);
  EXPECT_EQ(gradient.step, step);
  EXPECT_EQ(gradient.version, version);
  EXPECT_EQ(gradient.asked_ns, at);
  EXPECT_EQ(gradient.data_ns, 7);
  EXPECT_EQ(gradient.compute_ns, 100);
  EXPECT_EQ(gradient.produced_ns, at + 101);
}

// ---- gossip ----

TEST(Provenance, OfGossipIsTheShareAndTheOwnGradient) {
  TraceFolder folder(3);
  add_gradient(folder, 1, 4, 4, 1000);
  add_gradient(folder, 2, 6, 6, 1500);
  // Another message of the same number, of another sender.
  folder.message(0, 9, 10, 2, 6, 20, PayloadKind::leave, 2, 1);
  const auto sequence = folder.message(1, 4, 1200, 2, 6, 1700, PayloadKind::share, 33, 400);
  EXPECT_EQ(sequence, 1U);
  TraceRecord& applied = folder.add(EventKind::applied, 1800, 2, 6);
  applied.peer = applied.origin = 1;
  applied.origin_step = applied.version = 4;
  applied.sequence = sequence;
  applied.staleness = 1;
  applied.bytes = 390;
  folder.add(EventKind::committed, 1801, 2, 6).peer = 2;
  folder.add(EventKind::step_done, 1802, 2, 6);
  folder.add(EventKind::committed, 2801, 2, 7).peer = 2;  // of another step

  const Provenance p = found(folder, 2, 6);
  const std::int64_t zero = 10;  // the first record
  EXPECT_EQ(p.done_ns, 1802 - zero);
  ASSERT_EQ(p.updates.size(), 2U);
  expect_gradient(p.updates[0].gradient, 1, 4, 4, 1000 - zero);
  EXPECT_EQ(p.updates[0].path, PathKind::message);
  EXPECT_EQ(p.updates[0].staleness, 1);
  EXPECT_EQ(p.updates[0].bytes, 390U);
  ASSERT_EQ(p.updates[0].hops.size(), 1U);
  const MessageHop& hop = p.updates[0].hops[0];
  EXPECT_EQ(hop.from, 1);
  EXPECT_EQ(hop.to, 2);
  EXPECT_EQ(hop.payload, PayloadKind::share);
  EXPECT_EQ(hop.operation, 33);
  EXPECT_EQ(hop.sent_ns, 1200 - zero);
  EXPECT_EQ(hop.received_ns, 1700 - zero);
  expect_gradient(p.updates[1].gradient, 2, 6, 6, 1500 - zero);
  EXPECT_EQ(p.updates[1].path, PathKind::own);
  EXPECT_FALSE(p.updates[1].staleness) << "not an applied update of the ledger";
}

TEST(Provenance, AMessageThatTheTraceLacksIsNamed) {
  TraceFolder folder(2);
  TraceRecord& applied = folder.add(EventKind::applied, 1800, 0, 6);
  applied.peer = applied.origin = 1;
  applied.sequence = 99;
  const Provenance p = found(folder, 0, 6);
  ASSERT_EQ(p.updates.size(), 1U);
  EXPECT_EQ(p.updates[0].hops[0].from, 1);
  EXPECT_FALSE(p.updates[0].hops[0].sent_ns);
  EXPECT_FALSE(p.updates[0].gradient.asked_ns);
}

// ---- collectives ----

// All of `members` contribute the gradients of `steps` to an operation.
void add_operation(TraceFolder& folder, std::int64_t number, const std::vector<Rank>& members,
                   const std::vector<Step>& steps, std::int64_t at) {
  for (const Rank rank : members) {
    for (const Step step : steps)
      add_gradient(folder, rank, step, step, at + 200 * step + 4000 * rank);
  }
  for (std::size_t i = 0; i < members.size(); ++i)
    folder.message(members[i], steps.back(), at + 60000, members[(i + 1) % members.size()],
                   steps.back(), at + 61000, PayloadKind::chunk, number, 256);
  for (const Rank rank : members) {
    for (const Step step : steps) {
      TraceRecord& committed = folder.add(EventKind::committed, at + 70000, rank, steps.back());
      committed.peer = rank;
      committed.operation = number;
      committed.origin_step = step;
    }
    folder.add(EventKind::applied, at + 70000, rank, steps.back()).operation = number;
    TraceRecord& reduced = folder.add(EventKind::reduced, at + 70001, rank, steps.back());
    reduced.operation = number;
    reduced.members = members;
    folder.add(EventKind::step_done, at + 70002, rank, steps.back());
  }
}

TEST(Provenance, OfAnAllReduceIsEveryGradientInIt) {
  TraceFolder folder(4);
  add_operation(folder, 16, {0, 1, 2}, {8, 9}, 0);
  add_operation(folder, 17, {0, 1, 2}, {10, 11}, 100000);
  const Provenance p = found(folder, 1, 11);
  ASSERT_EQ(p.operations.size(), 1U);
  EXPECT_EQ(p.operations[0].number, 17);
  EXPECT_EQ(p.operations[0].members, (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(p.operations[0].messages, 1) << "to rank 1";
  EXPECT_EQ(p.operations[0].bytes, 256U);
  ASSERT_TRUE(p.operations[0].last);
  EXPECT_EQ(p.operations[0].last->from, 0);
  ASSERT_EQ(p.updates.size(), 6U) << "three ranks, two local steps";
  const std::int64_t zero = 200 * 8;
  for (std::size_t i = 0; i < 6; ++i) {
    const Rank worker = static_cast<Rank>(i / 2);
    const Step step = 10 + static_cast<Step>(i % 2);
    SCOPED_TRACE(i);
    expect_gradient(p.updates[i].gradient, worker, step, step,
                    100000 + 200 * step + 4000 * worker - zero);
    EXPECT_EQ(p.updates[i].path, PathKind::operation);
    EXPECT_EQ(p.updates[i].at, 1);
    EXPECT_EQ(p.updates[i].staleness, 0);
  }
}

// Two groups exchange under the same number.
TEST(Provenance, AnOperationIsThatOfItsMembers) {
  TraceFolder folder(4);
  add_operation(folder, 3, {0, 2}, {5}, 0);
  add_operation(folder, 3, {1, 3}, {5}, 0);
  const Provenance p = found(folder, 3, 5);
  ASSERT_EQ(p.updates.size(), 2U);
  EXPECT_EQ(p.updates[0].gradient.worker, 1);
  EXPECT_EQ(p.updates[1].gradient.worker, 3);
}

// A partial sum: rank 0 has two gradients in it, rank 1 one, rank 2 none.
TEST(Provenance, OfAPartialSumIsTheAgeOfEachGradient) {
  TraceFolder folder(3);
  const auto add = [&](Rank rank, Step step, std::int64_t staleness) {
    TraceRecord& committed = folder.add(EventKind::committed, 500, rank, step);
    committed.peer = rank;
    committed.operation = 7;
    TraceRecord& applied = folder.add(EventKind::applied, 500, rank, step);
    applied.operation = 7;
    applied.staleness = staleness;
  };
  for (const Rank rank : {0, 1, 2}) folder.add(EventKind::produced, 1, rank, 4);
  add(0, 4, 3);
  add(0, 5, 2);
  add(1, 4, 0);
  for (const Rank rank : {0, 1, 2}) {
    TraceRecord& contributed = folder.add(EventKind::contributed, 510, rank, 9);
    contributed.operation = 7;
    contributed.staleness = rank == 0 ? 2 : rank == 1 ? 0 : -1;
    TraceRecord& reduced = folder.add(EventKind::reduced, 520, rank, 9);
    reduced.operation = 7;
    reduced.members = {0, 1, 2};
  }
  for (const Rank rank : {0, 1, 2}) {
    const Provenance p = found(folder, rank, 9);
    std::map<std::pair<Rank, Step>, std::int64_t> ages;
    for (const TracedUpdate& update : p.updates)
      ages[{update.gradient.worker, update.gradient.step}] = update.staleness.value_or(-1);
    EXPECT_EQ(ages, (std::map<std::pair<Rank, Step>, std::int64_t>{
                        {{0, 4}, 3}, {{0, 5}, 2}, {{1, 4}, 0}}))
        << "for rank " << rank;
  }
}

// A rank that contributed the model it had is an update too, with its age.
TEST(Provenance, AnOlderModelIsAContribution) {
  TraceFolder folder(2);
  add_operation(folder, 2, {0}, {6}, 0);
  TraceRecord& contributed = folder.add(EventKind::contributed, 60000, 1, 3);
  contributed.operation = 2;
  contributed.staleness = 4;
  TraceRecord& reduced = folder.add(EventKind::reduced, 70001, 0, 6);
  reduced.operation = 2;
  reduced.members = {0, 1};
  const Provenance p = found(folder, 0, 6);
  std::map<Rank, std::int64_t> ages;
  for (const TracedUpdate& update : p.updates)
    if (p.operations[update.operation].members.size() == 2)
      ages[update.gradient.worker] = update.staleness.value_or(-1);
  EXPECT_EQ(ages, (std::map<Rank, std::int64_t>{{0, 0}, {1, 4}}));
}

// As a group records it: the gradient and the mean without their operation.
TEST(Provenance, TheOwnGradientInAnOperationIsOnce) {
  TraceFolder folder(2);
  for (const Rank rank : {0, 1}) {
    TraceRecord& contributed = folder.add(EventKind::contributed, 100, rank, 6 + rank);
    contributed.operation = 2;
    contributed.staleness = rank;
    TraceRecord& reduced = folder.add(EventKind::reduced, 200, rank, 6 + rank);
    reduced.operation = 2;
    reduced.members = {0, 1};
    folder.add(EventKind::committed, 201, rank, 6 + rank).peer = rank;
    folder.add(EventKind::applied, 201, rank, 6 + rank);
  }
  const Provenance p = found(folder, 0, 6);
  ASSERT_EQ(p.updates.size(), 2U);
  for (const Rank rank : {0, 1}) {
    const TracedUpdate& update = p.updates[static_cast<std::size_t>(rank)];
    EXPECT_EQ(update.path, PathKind::operation);
    EXPECT_EQ(update.gradient.worker, rank);
    EXPECT_EQ(update.gradient.step, 6 + rank);
    EXPECT_EQ(update.staleness, rank);
  }
}

// Rank 1 waits for nobody: what it gave to the others is not in its own model.
TEST(Provenance, AnOlderModelIsNotInTheModelOfItsRank) {
  TraceFolder folder(2);
  TraceRecord& contributed = folder.add(EventKind::contributed, 60000, 1, 3);
  contributed.operation = 2;
  contributed.staleness = 4;
  TraceRecord& applied = folder.add(EventKind::applied, 60000, 1, 3);
  applied.operation = 2;
  applied.staleness = 4;
  folder.add(EventKind::step_done, 70000, 1, 3);
  const Provenance p = found(folder, 1, 3);
  EXPECT_TRUE(p.updates.empty());
  EXPECT_TRUE(p.operations.empty());
}

TEST(Provenance, AMessageOfACheckpointHasNoLatency) {
  TraceFolder folder(2);
  folder.add(EventKind::resumed, 9000, 1, 3);
  const auto sequence = folder.message(0, 3, 1000, 1, 3, 9001, PayloadKind::share, 3, 64);
  folder.add(EventKind::step_done, 1001, 0, 3);
  TraceRecord& applied = folder.add(EventKind::applied, 9002, 1, 3);
  applied.peer = applied.origin = 0;
  applied.sequence = sequence;
  const Provenance p = found(folder, 1, 3);
  ASSERT_EQ(p.updates.size(), 1U);
  EXPECT_TRUE(p.updates[0].hops[0].of_checkpoint);
  std::ostringstream out;
  print_provenance(p, 2, TerminalStyle{}, out);
  EXPECT_NE(out.str().find(", received in the resumed run at "), std::string::npos) << out.str();
}

// ---- servers ----

// Client 0 pulls version 5 of server 2, and commits the gradient of step 3 as version 7.
void add_commit(TraceFolder& folder) {
  for (Version version = 4; version <= 6; ++version) {  // to client 1 go the others
    folder.message(2, version, 100 * version, version == 5 ? 0 : 1, 3, 100 * version + 20,
                   PayloadKind::grant, version, 50);
  }
  add_gradient(folder, 0, 3, 3, 530);
  // It arrives while the gradient of version 5 is computed.
  folder.message(2, 6, 640, 0, 3, 650, PayloadKind::receipt, 4, 50);
  const auto commit = folder.message(0, 3, 700, 2, 6, 730, PayloadKind::commit, 5, 60);
  TraceRecord& applied = folder.add(EventKind::applied, 740, 2, 7);
  applied.peer = applied.origin = 0;
  applied.origin_step = 3;
  applied.version = 5;
  applied.sequence = commit;
  applied.staleness = 1;
  folder.add(EventKind::step_done, 800, 0, 3);
}

void expect_commit(const Provenance& p) {
  ASSERT_EQ(p.updates.size(), 1U);
  const TracedUpdate& update = p.updates[0];
  EXPECT_EQ(update.at, 2);
  EXPECT_EQ(update.at_step, 7);
  EXPECT_EQ(update.gradient.worker, 0);
  EXPECT_EQ(update.gradient.step, 3);
  EXPECT_EQ(update.gradient.version, 5) << "of the server";
  EXPECT_EQ(update.gradient.compute_ns, 100);
  EXPECT_EQ(update.staleness, 1);
  ASSERT_EQ(update.hops.size(), 2U);
  EXPECT_EQ(update.hops[0].payload, PayloadKind::grant);
  EXPECT_EQ(update.hops[0].from, 2);
  EXPECT_EQ(update.hops[0].to, 0);
  EXPECT_EQ(update.hops[0].sent_ns, 500 - 400);
  EXPECT_EQ(update.hops[0].received_ns, 520 - 400);
  EXPECT_EQ(update.hops[1].payload, PayloadKind::commit);
  EXPECT_EQ(update.hops[1].from, 0);
  EXPECT_EQ(update.hops[1].received_ns, 730 - 400);
}

TEST(Provenance, OfAServersVersionIsPullAndCommit) {
  TraceFolder folder(2, 1);
  add_commit(folder);
  expect_commit(found(folder, 2, 7));
}

TEST(Provenance, OfAWorkersStepIsItsCommit) {
  TraceFolder folder(2, 1);
  add_commit(folder);
  const Provenance p = found(folder, 0, 3);
  expect_commit(p);
  EXPECT_EQ(p.done_ns, 800 - 400);
}

// A worker records in a later step, too, that its gradient is in the server's model.
TEST(Provenance, WhatAServerHasCommittedIsOneUpdate) {
  for (const Step noted : {3, 4}) {
    TraceFolder folder(2, 1);
    add_commit(folder);
    for (const Step step : {noted - 1, noted}) {
      TraceRecord& committed = folder.add(EventKind::committed, 850 + step, 0, noted);
      committed.peer = 2;
      committed.operation = 5;
      committed.origin_step = step;
    }
    expect_commit(found(folder, 0, 3));
  }
}

// With local steps a commit has the gradients since the one before it.
TEST(Provenance, ALocalStepIsInTheNextCommit) {
  TraceFolder folder(1, 2);
  for (Step step = 0; step < 6; ++step) add_gradient(folder, 0, step, step, 1000 * step);
  for (const Step step : {2, 5})
    for (const Rank server : {1, 2}) {
      TraceRecord& applied = folder.add(EventKind::applied, 1000 * step + 500, server, step);
      applied.peer = applied.origin = 0;
      applied.origin_step = step;
    }
  const Provenance p = found(folder, 0, 3);
  ASSERT_EQ(p.updates.size(), 2U) << "a slice for each server";
  EXPECT_EQ(p.updates[0].gradient.step, 5);
  EXPECT_EQ(p.updates[0].at, 1);
  EXPECT_EQ(p.updates[1].at, 2);
}

// Server 1 has refused the commit with step 0, and applied the next one before server 2 came to it.
TEST(Provenance, TheOldestCommitWithTheGradientCounts) {
  TraceFolder folder(1, 2);
  add_gradient(folder, 0, 0, 0, 0);
  for (const auto& [server, step, at] :
       {std::tuple{1, 5, 1000}, std::tuple{2, 2, 2000}, std::tuple{2, 5, 3000}}) {
    TraceRecord& applied = folder.add(EventKind::applied, at, server, step);
    applied.peer = applied.origin = 0;
    applied.origin_step = step;
  }
  const Provenance p = found(folder, 0, 0);
  ASSERT_EQ(p.updates.size(), 1U);
  EXPECT_EQ(p.updates[0].at, 2);
  EXPECT_EQ(p.updates[0].gradient.step, 2);
}

TEST(Provenance, ADroppedGradientIsSaidToBe) {
  TraceFolder folder(1, 1);
  add_gradient(folder, 0, 3, 3, 0);
  folder.add(EventKind::dropped, 900, 0, 3).peer = 1;
  const Provenance p = found(folder, 0, 3);
  EXPECT_TRUE(p.dropped);
  EXPECT_TRUE(p.updates.empty());
}

// ---- errors ----

TEST(Provenance, AnUnknownStepNamesThoseThatAreThere) {
  TraceFolder folder(2, 1);
  for (const Step step : {10, 20, 30}) folder.add(EventKind::step_done, step, 0, step);
  folder.add(EventKind::applied, 5, 2, 4).peer = 0;
  EXPECT_EQ(error(folder, 0, 40),
            "--why 0:40: the trace has no step 40 of rank 0: it has the steps 10 to 30");
  EXPECT_EQ(error(folder, 0, 12),
            "--why 0:12: the trace has no step 12 of rank 0: it has the steps 10 to 30, and next "
            "to this one 10 and 20");
  EXPECT_EQ(error(folder, 1, 0), "--why 1:0: the trace has no step 0 of rank 1: it has no steps");
  EXPECT_EQ(error(folder, 2, 9),
            "--why 2:9: the trace has no version 9 of rank 2: it has the version 4");
  EXPECT_EQ(error(folder, 3, 0), "--why 3:0: the run has no rank 3: it has the ranks 0 to 2");
}

// It asks for one gradient more than it takes, and messages arrive after its last step.
TEST(Provenance, NoErrorOffersAStepThatTheRankHasNotTaken) {
  TraceFolder folder(2);
  for (const Step step : {0, 1, 2}) folder.add(EventKind::step_done, step, 0, step);
  folder.add(EventKind::asked, 3, 0, 3);
  folder.add(EventKind::applied, 4, 0, 3).peer = 1;
  EXPECT_EQ(error(folder, 0, 9),
            "--why 0:9: the trace has no step 9 of rank 0: it has the steps 0 to 2");
}

TEST(Provenance, StepNamesAreChecked) {
  const auto name = parse_step_name("12:345");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->rank, 12);
  EXPECT_EQ(name->step, 345);
  for (const char* wrong : {"", ":", "1", "1:", ":1", "1:2:3", "-1:2", "1:-2", "a:1", "1:1 ",
                            "1:99999999999999999999", "99999999999:1", "0x1:1", "1.0:1"})
    EXPECT_FALSE(parse_step_name(wrong).ok()) << wrong;
}

// ---- report ----

TEST(Provenance, ReportsReadAsSentences) {
  EXPECT_EQ(ranks_in_words({}), "");
  EXPECT_EQ(ranks_in_words({4}), "4");
  EXPECT_EQ(ranks_in_words({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  TraceFolder folder(2, 1);
  add_commit(folder);
  std::ostringstream out;
  print_provenance(found(folder, 0, 3), 2, TerminalStyle{}, out);
  const std::string text = out.str();
  EXPECT_EQ(text.rfind("Step 3 of rank 0, done at 0.000000s: 1 update\n", 0), 0U) << text;
  EXPECT_NE(text.find("grant 5 2->0 sent 0.000000s, received after 20ns; commit 5 0->2 sent"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("; version 7 of rank 2\n"), std::string::npos) << text;
}

TEST(Provenance, AStepThatWasOnlyBegunIsSaidNotToBeTaken) {
  TraceFolder folder(2, 1);
  for (const Step step : {0, 1}) add_gradient(folder, 0, step, step, 1000 * step);
  folder.add(EventKind::step_done, 1200, 0, 0);
  folder.add(EventKind::asked, 2000, 0, 2);
  folder.add(EventKind::applied, 2100, 0, 2).peer = 1;
  folder.add(EventKind::applied, 2200, 2, 7).peer = 0;
  const auto first_line = [&folder](Rank rank, Step step) {
    std::ostringstream out;
    print_provenance(found(folder, rank, step), 2, TerminalStyle{}, out);
    return out.str().substr(0, out.str().find('\n'));
  };
  EXPECT_EQ(first_line(0, 2), "Step 2 of rank 0, not taken in this trace: 1 update");
  EXPECT_EQ(first_line(0, 1), "Step 1 of rank 0: no updates") << "its gradient was computed";
  EXPECT_EQ(first_line(0, 0).find("not taken"), std::string::npos) << first_line(0, 0);
  EXPECT_EQ(first_line(2, 7).find("not taken"), std::string::npos) << first_line(2, 7);
  EXPECT_EQ(provenance_json(found(folder, 0, 2), {})["taken"], false);
  EXPECT_EQ(provenance_json(found(folder, 0, 1), {})["taken"], true);
}

TEST(Provenance, JsonHasNullWhereTheTraceHasNothing) {
  TraceFolder folder(2);
  add_operation(folder, 1, {0, 1}, {0}, 0);
  TraceRecord& applied = folder.add(EventKind::applied, 90000, 0, 1);
  applied.peer = applied.origin = 1;
  const auto reduced = provenance_json(found(folder, 0, 0), {"a note"});
  EXPECT_EQ(reduced["updates"].size(), 2U);
  EXPECT_EQ(reduced["updates"][1]["worker"], 1);
  EXPECT_EQ(reduced["updates"][1]["batch"], 0);
  EXPECT_EQ(reduced["updates"][1]["path"]["kind"], "all-reduce");
  EXPECT_EQ(reduced["updates"][1]["path"]["members"], (std::vector<Rank>{0, 1}));
  EXPECT_EQ(reduced["missing"][0], "a note");
  const auto unknown = provenance_json(found(folder, 0, 1), {});
  const auto& update = unknown["updates"][0];
  EXPECT_EQ(update["path"]["kind"], "message");
  EXPECT_TRUE(update["path"]["hops"][0]["sent_s"].is_null());
  EXPECT_TRUE(unknown["done_s"].is_null());
}

}  // namespace provenance_test
}  // namespace grapevine
