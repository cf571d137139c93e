// Each check notices what it is there for. The campaign of tests/apps/simulate shows that they
// accept the shipped roles.
#include "actors/run/simulation/run_check.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "actors/run/simulation/checks/entry_sample.hpp"

namespace grapevine {
namespace run_check_test {

CheckedRun four_ranks() {
  CheckedRun run;
  run.workers = 4;
  run.steps = 10;
  run.gives_weight = true;
  run.most_staleness = 1;
  return run;
}

TraceRecord record(EventKind kind, Rank rank, Step step) {
  TraceRecord made;
  made.kind = kind;
  made.rank = made.origin = rank;
  made.step = made.origin_step = step;
  return made;
}

RunResult good_result() {
  RunResult result;
  result.weight_sum = 4;
  result.steps = {10, 10, 10, 10};
  return result;
}

std::string only(const RunCheck& check) {
  EXPECT_EQ(check.violation_count(), 1u);
  return check.violations().empty() ? "" : check.violations().front();
}

TEST(LedgerCheck, AcceptsAGradientThatIsAppliedOnce) {
  const auto check = make_ledger_check(four_ranks());
  check->on_record(record(EventKind::produced, 1, 0));
  check->on_record(record(EventKind::committed, 1, 0));
  RunResult result = good_result();
  result.ledger.produced = result.ledger.committed = 1;
  check->on_end(result);
  EXPECT_EQ(check->violation_count(), 0u);
}

TEST(LedgerCheck, NoticesAGradientThatIsAppliedTwice) {
  const auto check = make_ledger_check(four_ranks());
  check->on_record(record(EventKind::produced, 1, 0));
  check->on_record(record(EventKind::committed, 1, 0));
  check->on_record(record(EventKind::committed, 1, 0));
  EXPECT_NE(only(*check).find("not pending"), std::string::npos);
}

TEST(LedgerCheck, NoticesAGradientThatTheLedgerForgets) {
  const auto check = make_ledger_check(four_ranks());
  check->on_record(record(EventKind::produced, 1, 0));
  check->on_end(good_result());
  EXPECT_NE(only(*check).find("produced"), std::string::npos);
}

TEST(LedgerCheck, NoticesAGradientThatStaysPending) {
  const auto check = make_ledger_check(four_ranks());
  check->on_record(record(EventKind::produced, 1, 0));
  RunResult result = good_result();
  result.ledger.produced = 1;
  check->on_end(result);
  EXPECT_NE(only(*check).find("neither applied nor dropped"), std::string::npos);
}

FrozenTensor vector_of(const std::vector<float>& values) {
  return FrozenTensor::copy_of(at::tensor(values));
}

// Two ranks, one operation in which both take part, then one of rank 0 alone.
std::unique_ptr<RunCheck> means_of_two(double moved) {
  CheckedRun run;
  run.workers = 2;
  run.gradient_sums = GradientSums::means;
  run.rate = 0.5;
  auto check = make_sum_check(run);
  check->on_begin(vector_of({1}));
  check->on_gradient(0, 0, vector_of({2}));
  check->on_gradient(1, 0, vector_of({4}));
  check->on_gradient(0, 1, vector_of({6}));
  for (Step step = 0; step < 2; ++step) {
    TraceRecord reduced = record(EventKind::reduced, 0, step);
    reduced.operation = step;
    reduced.members = step == 0 ? std::vector<Rank>{0, 1} : std::vector<Rank>{0};
    check->on_record(reduced);
  }
  RunResult result = good_result();
  result.z = vector_of({static_cast<float>(1 + moved)});
  check->on_end(result);
  return check;
}

TEST(SumCheck, AcceptsTheMeanOfTheMembersOfEachOperation) {
  EXPECT_EQ(means_of_two(-0.5 * 3 - 0.5 * 6)->violation_count(), 0u);
}

TEST(SumCheck, NoticesADivisorThatCountsALostRank) {
  EXPECT_NE(only(*means_of_two(-0.5 * 3 - 0.5 * 3)).find("moved"), std::string::npos);
}

PackedChunk packed(const std::vector<std::int32_t>& indices, const std::vector<float>& values,
                   std::int64_t operation, std::int32_t sender = 0) {
  PackedChunk chunk;
  chunk.sender = sender;
  chunk.operation = operation;
  chunk.data.indices = FrozenTensor::copy_of(at::tensor(indices, at::kInt));
  chunk.data.values = vector_of(values);
  return chunk;
}

TEST(FeedbackCheck, FollowsWhatWasNotSent) {
  CheckedRun run = four_ranks();
  run.feeds_back = true;
  for (const float second : {3.0F, 2.0F}) {  // with the residual of 1, and without
    const auto check = make_feedback_check(run);
    check->on_begin(vector_of({0, 0}));
    check->on_gradient(0, 0, vector_of({5, 1}));
    Envelope message;
    message.payload = packed({0}, {5}, 0);
    check->on_sent(Timestamp{1}, message, 1);
    check->on_gradient(0, 1, vector_of({1, 2}));
    message.payload = packed({1}, {second}, 1);
    check->on_sent(Timestamp{2}, message, 1);
    EXPECT_EQ(check->violation_count(), second == 3 ? 0u : 1u);
  }
}

// The same of a model of which a few entries are followed: a residual of all entries that is lost
// shows in those.
TEST(FeedbackCheck, FollowsASampleOfALargeModel) {
  constexpr std::int64_t kParameters = 100'000;
  for (const bool loses : {false, true}) {
    CheckedRun run = four_ranks();
    run.feeds_back = true;
    run.seed = 7;
    run.most_entries = 400;
    const auto check = make_feedback_check(run);
    check->on_begin(FrozenTensor::freeze(at::zeros({kParameters})));
    check->on_gradient(1, 0, FrozenTensor::freeze(at::ones({kParameters})));
    std::vector<std::int32_t> half;
    for (std::int32_t i = 0; i < kParameters; i += 2) half.push_back(i);
    std::vector<float> values(half.size(), 1);
    Envelope message;
    message.from = 1;
    message.payload = packed(half, values, 0, 1);
    check->on_sent(Timestamp{1}, message, 1);
    check->on_gradient(1, 1, FrozenTensor::freeze(at::ones({kParameters})));
    for (std::int32_t& i : half) ++i;
    for (float& value : values) value = loses ? 1 : 2;
    message.payload = packed(half, values, 1, 1);
    check->on_sent(Timestamp{2}, message, 1);
    if (!loses) {
      EXPECT_EQ(check->violation_count(), 0u);
      continue;
    }
    // About half of the 100 entries that are followed at a rank are odd.
    EXPECT_GT(check->violation_count(), 25u);
    EXPECT_LE(check->violation_count(), 100u);
  }
}

TEST(EntrySample, HasOneEntryOfEachBlock) {
  for (const std::int64_t d : {1, 63, 64, 65, 1000, 1'000'003}) {
    const EntrySample sample(d, 64, 3), other(d, 64, 4);
    ASSERT_LE(sample.size(), 64u);
    EXPECT_GE(2 * sample.size(), static_cast<std::size_t>(std::min<std::int64_t>(d, 64)));
    EXPECT_EQ(sample.size() == static_cast<std::size_t>(d), d <= 64);
    std::set<std::int64_t> entries, of_other;
    for (std::size_t slot = 0; slot < sample.size(); ++slot) {
      const std::int64_t entry = sample.entry(slot);
      ASSERT_GE(entry, 0);
      ASSERT_LT(entry, d);
      EXPECT_EQ(sample.slot_of(entry), slot);
      entries.insert(entry);
      of_other.insert(other.entry(slot));
    }
    EXPECT_EQ(entries.size(), sample.size());
    if (d > 1000) {
      EXPECT_NE(entries, of_other) << "drawn by the seed";
    }
    std::int64_t found = 0;
    for (std::int64_t entry = 0; entry < std::min<std::int64_t>(d, 1000); ++entry)
      found += sample.slot_of(entry) < sample.size() ? 1 : 0;
    if (d <= 1000) {
      EXPECT_EQ(found, static_cast<std::int64_t>(sample.size()));
    }
  }
}

CheckedRun one_server() {
  CheckedRun run;
  run.workers = 2;
  run.servers = 1;
  return run;
}

TraceRecord commit(Rank client, Version version, Version pulled, std::int64_t staleness) {
  TraceRecord made = record(EventKind::applied, 2, version);
  made.peer = client;
  made.version = pulled;
  made.staleness = staleness;
  return made;
}

TEST(VersionCheck, CountsTheCommitsOfOthers) {
  const auto check = make_version_check(one_server());
  check->on_record(commit(0, 1, 0, 0));
  check->on_record(commit(1, 2, 0, 1));
  check->on_record(commit(1, 3, 2, 0));
  check->on_end(good_result());
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_record(commit(0, 4, 1, 1));  // two of rank 1 since then
  EXPECT_NE(only(*check).find("staleness 1"), std::string::npos);
}

TEST(VersionCheck, CountsTheCommitsOfALostLifeAsThoseOfAnother) {
  const auto check = make_version_check(one_server());
  check->on_record(commit(0, 1, 0, 0));
  check->on_record(commit(1, 2, 0, 1));
  TraceRecord lost = record(EventKind::view, 2, 0);
  lost.peer = 1;
  check->on_record(lost);
  check->on_record(commit(1, 3, 1, 1));  // from a copy of version 1
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_record(commit(1, 4, 1, 1));  // its own third one does not count
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_record(commit(0, 5, 1, 2));
  EXPECT_NE(only(*check).find("staleness 2"), std::string::npos);
}

TEST(VersionCheck, NoticesAVersionThatIsSkippedOrClaimed) {
  const auto skipped = make_version_check(one_server());
  skipped->on_record(commit(0, 2, 0, 0));
  EXPECT_NE(only(*skipped).find("version 2"), std::string::npos);
  const auto claimed = make_version_check(one_server());
  Envelope message;
  message.from = 2;
  message.stamp.version = 1;
  message.payload = Receipt{};
  claimed->on_sent(Timestamp{1}, message, 1);
  claimed->on_end(good_result());
  EXPECT_NE(only(*claimed).find("sent version 1"), std::string::npos);
}

TEST(DeliveryCheck, NoticesAMessageThatIsAcceptedTwice) {
  const auto check = make_delivery_check(four_ranks());
  TraceRecord received = record(EventKind::received, 1, 0);
  received.peer = 2;
  received.sequence = 7;
  check->on_record(received);
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_record(received);
  EXPECT_NE(only(*check).find("accepted message 7 of rank 2"), std::string::npos);
}

TEST(AgreementCheck, NoticesReplicasThatDiffer) {
  CheckedRun run = four_ranks();
  run.ranks_agree = true;
  const auto check = make_agreement_check(run);
  RunResult result = good_result();
  result.consensus_distance = 1e-9;
  check->on_end(result);
  EXPECT_NE(only(*check).find("differ at the end"), std::string::npos);
}

Envelope share(Rank from, Rank to, double w, std::uint64_t sequence = 1) {
  Envelope message;
  message.from = from;
  message.to = to;
  message.stamp.sequence = sequence;
  Share payload;
  payload.w = w;
  message.payload = payload;
  return message;
}

TEST(MassCheck, AcceptsSharesOfWhatARankHas) {
  const auto check = make_mass_check(four_ranks());
  check->on_sent(Timestamp{1}, share(0, 1, 0.5), 100);
  check->on_delivered(Timestamp{2}, share(0, 1, 0.5));
  check->on_sent(Timestamp{3}, share(1, 2, 1.4), 100);
  check->on_end(good_result());
  EXPECT_EQ(check->violation_count(), 0u);
}

TEST(MassCheck, NoticesWeightFromNowhere) {
  const auto check = make_mass_check(four_ranks());
  check->on_sent(Timestamp{1}, share(0, 1, 0.7), 100);
  check->on_sent(Timestamp{2}, share(0, 2, 0.7), 100);
  EXPECT_NE(only(*check).find("rank 0"), std::string::npos);
}

TEST(MassCheck, NoticesWeightThatIsGoneAtTheEnd) {
  const auto check = make_mass_check(four_ranks());
  RunResult result = good_result();
  result.weight_sum = 3.5;
  check->on_end(result);
  EXPECT_NE(only(*check).find("3.5"), std::string::npos);
}

TEST(StalenessCheck, NoticesAnUpdateBeyondTheBound) {
  const auto check = make_staleness_check(four_ranks());
  TraceRecord applied = record(EventKind::applied, 2, 5);
  applied.staleness = 1;
  check->on_record(applied);
  EXPECT_EQ(check->violation_count(), 0u);
  applied.staleness = 2;
  check->on_record(applied);
  EXPECT_NE(only(*check).find("staleness 2"), std::string::npos);
}

TEST(LivenessCheck, NoticesARankThatEndsEarly) {
  const auto check = make_liveness_check(four_ranks());
  RunResult result = good_result();
  result.steps[2] = 7;
  check->on_end(result);
  EXPECT_NE(only(*check).find("rank 2"), std::string::npos);
}

TEST(LivenessCheck, NoticesAnErrorAndForgivesALostRank) {
  const auto check = make_liveness_check(four_ranks());
  RunResult result = good_result();
  result.steps[2] = 7;
  result.lost = {2};
  check->on_end(result);
  EXPECT_EQ(check->violation_count(), 0u);
  result.error = Error{Errc::failed, "stuck"};
  check->on_end(result);
  EXPECT_EQ(only(*check), "stuck");
}

TEST(DeliveryCheck, NoticesADeliveryToTheDead) {
  const auto check = make_delivery_check(four_ranks());
  check->on_detached(Timestamp{10}, 1);
  check->on_delivered(Timestamp{11}, share(0, 1, 0.5));
  EXPECT_NE(only(*check).find("after its death"), std::string::npos);
}

TEST(DeliveryCheck, NoticesAMessageOrARecordOfTheDead) {
  const auto check = make_delivery_check(four_ranks());
  check->on_detached(Timestamp{10}, 1);
  check->on_delivered(Timestamp{11}, share(1, 0, 0.5));  // was on its way
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_sent(Timestamp{12}, share(1, 0, 0.5), 100);
  TraceRecord late = record(EventKind::step_done, 1, 3);
  late.time_ns = 11;
  check->on_record(late);
  EXPECT_EQ(check->violation_count(), 2u);
}

TEST(DeliveryCheck, NoticesTwoMessagesOfAPairOutOfOrder) {
  const auto check = make_delivery_check(four_ranks());
  check->on_delivered(Timestamp{1}, share(0, 1, 0.5, 2));
  check->on_delivered(Timestamp{2}, share(0, 2, 0.5, 1));
  EXPECT_EQ(check->violation_count(), 0u);
  check->on_delivered(Timestamp{3}, share(0, 1, 0.5, 1));
  EXPECT_NE(only(*check).find("received message 1"), std::string::npos);
}

TraceRecord reduced(Rank rank, std::int64_t operation, std::vector<Rank> members) {
  TraceRecord made = record(EventKind::reduced, rank, 0);
  made.operation = operation;
  made.members = std::move(members);
  return made;
}

TEST(AgreementCheck, AcceptsEqualMembersAndGroupsSideBySide) {
  const auto check = make_agreement_check(four_ranks());
  for (const Rank rank : {0, 1}) check->on_record(reduced(rank, 0, {0, 1}));
  for (const Rank rank : {2, 3}) check->on_record(reduced(rank, 0, {2, 3}));
  for (const Rank rank : {0, 1, 2, 3}) check->on_record(reduced(rank, 1, {0, 2, 3}));
  check->on_end(good_result());
  EXPECT_EQ(check->violation_count(), 0u);
}

TEST(AgreementCheck, NoticesRanksThatDisagreeAboutAnOperation) {
  const auto check = make_agreement_check(four_ranks());
  check->on_record(reduced(0, 0, {0, 1, 2}));
  check->on_record(reduced(1, 0, {0, 1, 3}));
  EXPECT_NE(only(*check).find("operation 0"), std::string::npos);
}

TEST(AgreementCheck, NoticesALossThatOnlyOneRankHasSeen) {
  const auto check = make_agreement_check(four_ranks());
  TraceRecord view = record(EventKind::view, 0, 4);
  view.peer = 3;
  check->on_record(view);
  check->on_end(good_result());
  EXPECT_NE(only(*check).find("rank 3"), std::string::npos);
}

TEST(RunChecks, NamesTheCheckAndCountsWhatItLeavesOut) {
  RunChecks checks(four_ranks());
  std::vector<TraceRecord> records(20, record(EventKind::committed, 1, 0));
  checks.on_records(records);
  const auto violations = checks.violations();
  ASSERT_EQ(violations.size(), 9u);
  EXPECT_EQ(violations.front().rfind("ledger: ", 0), 0u);
  EXPECT_EQ(violations.back(), "ledger: 12 more");
}

// Two nodes of two ranks.
TEST(AgreementCheck, ComparesTheOperationsOfOneExchange) {
  CheckedRun run = four_ranks();
  run.group_sizes = {2};
  const auto check = make_agreement_check(run);
  const auto reduce = [&check](Rank rank, std::vector<Rank> members) {
    TraceRecord reduced = record(EventKind::reduced, rank, 0);
    reduced.operation = 0;
    reduced.members = std::move(members);
    check->on_record(reduced);
  };
  reduce(0, {0, 1});
  reduce(2, {2, 3});
  reduce(0, {0, 2});
  EXPECT_EQ(check->violation_count(), 0u);
  reduce(2, {2});
  EXPECT_NE(only(*check).find("operation 0 has the members 2 at rank 2"), std::string::npos);
}

// Nodes of two ranks in groups of two nodes, without the last rank, or the last three: a rank that
// is alone in its group exchanges with itself there.
TEST(AgreementCheck, ComparesNoGroupOfOneRankWithTheExchangeAroundIt) {
  for (const std::int32_t vacant : {1, 3}) {
    SCOPED_TRACE(vacant);
    CheckedRun run = four_ranks();
    run.workers = 8;
    run.vacant = vacant;
    run.group_sizes = {2, 4};
    const auto check = make_agreement_check(run);
    const std::vector<Rank> heads = vacant == 1 ? std::vector<Rank>{4, 6} : std::vector<Rank>{4};
    const Rank alone = heads.back();
    for (std::int64_t operation = 0; operation < 3; ++operation) {
      check->on_record(reduced(0, operation, {0, 1}));
      check->on_record(reduced(alone, operation, {alone}));
      check->on_record(reduced(4, operation + 1, heads));
      check->on_record(reduced(0, operation, {0, 2}));
      check->on_record(reduced(0, operation + 2, {0, 4}));
      check->on_record(reduced(4, operation + 2, {0, 4}));
    }
    EXPECT_EQ(check->violation_count(), 0u);
    check->on_record(reduced(2, 1, {2}));  // its group has another rank
    check->on_record(reduced(0, 1, {0, 2, 4}));
    EXPECT_EQ(check->violation_count(), 1u);
  }
}

// Rank 0 gives half of its weight, of which the last message is lost.
TEST(MassCheck, CountsWhatTheEdgesOfRunningSumsOwe) {
  for (const double weight_sum : {3.5, 3.25}) {
    CheckedRun run = four_ranks();
    run.gives_weight = false;
    run.gives_sums = true;
    const auto check = make_mass_check(run);
    Envelope message;
    message.from = 0;
    message.to = 1;
    message.payload = Share{0, 0.25, vector_of({0})};
    check->on_sent(Timestamp{1}, message, 1);
    check->on_delivered(Timestamp{2}, message);
    message.payload = Share{1, 0.75, vector_of({0})};
    check->on_sent(Timestamp{3}, message, 1);
    check->on_lost(Timestamp{4}, message);
    RunResult result = good_result();
    result.weight_sum = weight_sum;
    check->on_end(result);
    EXPECT_EQ(check->violation_count(), weight_sum == 3.5 ? 0u : 1u);
  }
}

}  // namespace run_check_test
}  // namespace grapevine
