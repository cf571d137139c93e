// The last models are taken when no message is in flight, whatever the order of the reports.
#include "actors/run/supervision/final_reports.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace final_reports_test {

using Next = FinalReports::Next;

// Ranks that have taken their last step, and still answer messages for a while. There are few of
// them at any time, so that rounds of reports are often balanced by chance: a message that is
// counted only as sent, and its answer, which is counted only as received.
class Traffic {
 public:
  Traffic(std::int32_t ranks, std::uint64_t seed) : ledgers_(ranks), rng_(seed) { send(0); }

  // One event: a message arrives. Its receiver sends none, one or two.
  void advance() {
    if (in_flight_.empty()) return;
    const std::size_t which = rng_() % in_flight_.size();
    const Rank receiver = in_flight_[which];
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(which));
    ++ledgers_[static_cast<std::size_t>(receiver)].received;
    for (std::uint64_t replies = rng_() % 3; replies > 0 && budget_ > 0; --replies) {
      --budget_;
      send(receiver);
    }
  }
  bool is_quiet() const { return in_flight_.empty(); }
  std::uint64_t draw() { return rng_(); }

  RankReport report_of(Rank rank) const {
    RankReport report;
    report.rank = rank;
    report.ledger = ledgers_[static_cast<std::size_t>(rank)];
    return report;
  }

 private:
  void send(Rank sender) {
    ++ledgers_[static_cast<std::size_t>(sender)].sent;
    in_flight_.push_back(static_cast<Rank>(rng_() % ledgers_.size()));
  }

  std::vector<Ledger> ledgers_;
  std::vector<Rank> in_flight_;  // the receivers
  std::int64_t budget_ = 40;     // of messages
  Rng rng_;
};

// The reports of one round, each of another moment, in any order.
Next one_round(FinalReports& reports, Traffic& traffic, const RunMembers& members) {
  std::vector<Rank> order;
  for (Rank rank = 0; rank < members.ranks(); ++rank)
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(traffic.draw() % (order.size() + 1)),
                 rank);
  reports.begin_round();
  Next next = Next::wait;
  for (const Rank rank : order) {
    EXPECT_EQ(next, Next::wait) << "a report is missing";
    EXPECT_TRUE(reports.in_round());
    RankReport report = traffic.report_of(rank);
    reports.add(report);
    next = reports.evaluate(members);
    for (std::uint64_t events = traffic.draw() % 4; events > 0; --events) traffic.advance();
  }
  EXPECT_FALSE(reports.in_round());
  return next;
}

TEST(FinalReports, AskForModelsOnlyWhenNothingIsInFlight) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const RunMembers members(2 + static_cast<std::int32_t>(seed % 5));
    Traffic traffic(members.ranks(), seed);
    FinalReports reports;
    int rounds = 0;
    while (one_round(reports, traffic, members) == Next::ask_later) {
      ASSERT_FALSE(reports.with_models());
      ASSERT_LT(++rounds, 100) << "no end";
    }
    ASSERT_TRUE(reports.with_models());
    ASSERT_TRUE(traffic.is_quiet()) << "a message in flight would be lost";
    EXPECT_FALSE(reports.complete()) << "the models are still to come";
    EXPECT_EQ(one_round(reports, traffic, members), Next::complete);
    EXPECT_TRUE(reports.complete());
    EXPECT_TRUE(reports.has_models(members));
  }
}

// Lost while it was to report: the reports of the others are enough.
TEST(FinalReports, ALostRankEndsARoundThatWaitedForIt) {
  RunMembers members(2);
  Traffic quiet(2, 1);
  while (!quiet.is_quiet()) quiet.advance();
  FinalReports reports;
  reports.accept_in_flight();
  reports.begin_round();
  RankReport report = quiet.report_of(1);
  reports.add(report);
  EXPECT_EQ(reports.evaluate(members), Next::wait);
  EXPECT_FALSE(reports.has_models(members));
  members.lose(0);
  EXPECT_EQ(reports.evaluate(members), Next::complete);
  EXPECT_TRUE(reports.has_models(members));
}

}  // namespace final_reports_test
}  // namespace grapevine
