// Each check notices what it is there for. The campaign of tests/apps/simulate shows that they
// accept the shipped roles.
#include "actors/run/simulation/run_check.hpp"

#include <gtest/gtest.h>

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

}  // namespace run_check_test
}  // namespace grapevine
