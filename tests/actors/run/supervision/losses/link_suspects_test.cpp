// A process counts as lost after a whole silence, and not before.
#include "actors/run/supervision/losses/link_suspects.hpp"

#include <gtest/gtest.h>

#include "messages/random.hpp"
#include "net/loss_reason.hpp"

namespace grapevine {
namespace link_suspects_test {

constexpr Duration kSilence = std::chrono::seconds(60);
constexpr Duration kSecond = std::chrono::seconds(1);

// Against the sum of all quiet time since the last moment that explains the silence.
TEST(LinkSuspects, ASilenceIsOverAfterItsWholeTime) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    LinkSuspects suspects(kSilence);
    ASSERT_TRUE(suspects.add(2, {0, 5, "reset"}));
    Timestamp now = 7 * kSecond;
    Duration quiet{0};
    for (bool first = true;; first = false) {
      const bool busy = rng() % 50 == 0;
      if (first || busy) quiet = Duration(0);
      const auto silence = suspects.on_no_answer(2, now, busy);
      ASSERT_TRUE(silence);
      EXPECT_EQ(silence->reporter, 0);
      EXPECT_EQ(silence->first, first);
      ASSERT_EQ(silence->over, quiet >= kSilence);
      if (silence->over) break;
      const Duration pause = kSecond * static_cast<std::int64_t>(1 + rng() % 5);
      now += pause;
      quiet += pause;
    }
  }
}

// The first report counts, and an answer ends the suspicion: a later loss is asked about anew.
TEST(LinkSuspects, AnAnswerReturnsTheFirstLoss) {
  LinkSuspects suspects(kSilence);
  EXPECT_TRUE(suspects.add(1, {0, 2, "first"}));
  EXPECT_FALSE(suspects.add(1, {1, 3, "second"}));
  EXPECT_TRUE(suspects.has(1));
  EXPECT_FALSE(suspects.on_answer(2));
  const auto lost = suspects.on_answer(1);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->reason, "first");
  EXPECT_FALSE(suspects.has(1));
  EXPECT_FALSE(suspects.on_answer(1));
  EXPECT_FALSE(suspects.on_no_answer(1, kSilence, false));
  EXPECT_TRUE(suspects.add(1, {1, 3, "third"}));
  suspects.remove(1);
  EXPECT_FALSE(suspects.has(1));
}

// Those of these ranks, in this order, without process 0, which has the servers.
std::vector<std::int32_t> processes_of(const std::vector<Rank>& ranks, const RunMembers& members) {
  std::vector<std::int32_t> processes;
  for (const Rank rank : ranks)
    if (members.process_of(rank) > 0) processes.push_back(members.process_of(rank));
  return processes;
}

// Three processes of two workers each; the server is in process 0.
TEST(LinkSuspects, AllProcessesButTheFirstAreDispensable) {
  RunMembers members(7, 1);
  members.set_processes(3);
  for (Rank reporter = 0; reporter < 7; ++reporter)
    for (Rank peer = 0; peer < 7; ++peer)
      EXPECT_EQ(dispensable_processes({reporter, peer, ""}, members),
                processes_of({peer, reporter}, members))
          << reporter << " to " << peer;
}

// A process that could not receive a message is the one that fails, not that which sent it.
TEST(LinkSuspects, AnErrorOfTheReporterMakesItTheDispensableOne) {
  RunMembers members(7, 1);
  members.set_processes(3);
  for (Rank reporter = 0; reporter < 7; ++reporter)
    for (Rank peer = 0; peer < 7; ++peer) {
      const std::string reason = loss_reason({Errc::io, "no memory"});
      EXPECT_EQ(dispensable_processes({reporter, peer, reason}, members),
                processes_of({reporter, peer}, members))
          << reporter << " to " << peer;
    }
  EXPECT_FALSE(is_error_here(loss_reason({Errc::protocol, "noise"})));
}

}  // namespace link_suspects_test
}  // namespace grapevine
