// Ranks on processes, and what remains of them.
#include "actors/run/supervision/run_members.hpp"

#include <gtest/gtest.h>

#include <map>

#include "messages/random.hpp"

namespace grapevine {
namespace run_members_test {

RunMembers members_of(std::int32_t processes, std::int32_t workers_each, std::int32_t servers) {
  RunMembers members(processes * workers_each + servers, servers);
  members.set_processes(processes);
  return members;
}

// Workers in equal shares and in order; all servers in process 0.
TEST(RunMembers, PlacesTheRanksOnTheProcesses) {
  for (std::int32_t processes = 1; processes <= 4; ++processes)
    for (std::int32_t each = 1; each <= 3; ++each)
      for (std::int32_t servers = 0; servers <= 5; ++servers) {
        const RunMembers members = members_of(processes, each, servers);
        for (Rank rank = 0; rank < members.workers(); ++rank)
          EXPECT_EQ(members.process_of(rank), rank / each) << rank;
        for (Rank rank = members.workers(); rank < members.ranks(); ++rank)
          EXPECT_EQ(members.process_of(rank), 0) << rank;
      }
}

// Every rank has answered, or is lost, or is missing; and all_in() holds once none is missing.
TEST(RunMembers, ARankHasAnsweredOrIsLostOrIsMissing) {
  Rng rng(3);
  for (int run = 0; run < 50; ++run) {
    RunMembers members = members_of(4, 2, 1);
    std::map<Rank, int> answers;
    while (true) {
      std::string missing;
      for (Rank rank = 0; rank < members.ranks(); ++rank)
        if (answers.count(rank) == 0 && !members.is_lost(rank))
          missing += (missing.empty() ? "rank " : ", ") + std::to_string(rank);
      EXPECT_EQ(members.missing_in(answers), missing);
      EXPECT_EQ(members.all_in(answers), missing.empty());
      if (missing.empty()) break;
      const auto rank = static_cast<Rank>(rng() % 9);
      if (rng() % 4 > 0) {
        if (!members.is_lost(rank)) answers[rank] = 1;
      } else {
        members.lose(rank);
        EXPECT_FALSE(members.lose(rank)) << "it was lost before";
        answers.erase(rank);
      }
    }
  }
}

TEST(RunMembers, NamesWhatRemainsAfterLosses) {
  RunMembers members = members_of(3, 2, 0);
  EXPECT_TRUE(members.lose_process(1));
  EXPECT_FALSE(members.lose_process(1));
  EXPECT_EQ(members.remaining_processes(), std::vector<std::int32_t>{2});
  EXPECT_EQ(members.remaining_ranks_of(1), (std::vector<Rank>{2, 3}));
  EXPECT_TRUE(members.lose(2));
  EXPECT_EQ(members.remaining_ranks_of(1), std::vector<Rank>{3});
  EXPECT_EQ(members.lost(), std::set<Rank>{2});
}

TEST(RunMembers, ServersAreNoWorkersThatRemain) {
  RunMembers members(5, 2);
  EXPECT_EQ(members.remaining_workers(), 3);
  members.lose(1);
  EXPECT_EQ(members.remaining_workers(), 2);
  members.lose(4);
  EXPECT_EQ(members.remaining_workers(), 2);
}

TEST(RunMembers, AProcessReturnsWithItsRanks) {
  RunMembers members(6, 0);
  members.set_processes(3);
  for (const Rank rank : {2, 3}) members.lose(rank);
  members.lose_process(1);
  EXPECT_EQ(members.remaining_workers(), 4);
  EXPECT_EQ(members.bring_back(1), (std::vector<Rank>{2, 3}));
  EXPECT_EQ(members.remaining_workers(), 6);
  EXPECT_FALSE(members.is_process_lost(1));
  EXPECT_EQ(members.incarnation(1), 1);
  EXPECT_EQ(members.incarnation(2), 0);
  EXPECT_TRUE(members.lose_process(1)) << "it may be lost again";
}

// A place that nobody has had counts as lost until a process takes it.
TEST(RunMembers, VacantPlacesAreTaken) {
  RunMembers members(5, 1);
  members.set_processes(2);
  for (const Rank rank : {2, 3}) members.leave_vacant(rank);
  EXPECT_EQ(members.remaining_ranks_that_train(), (std::vector<Rank>{0, 1}));
  EXPECT_EQ(members.server_ranks(), std::vector<Rank>{4});
  EXPECT_TRUE(members.is_process_lost(1));
  EXPECT_TRUE(members.has_vacant(1));
  EXPECT_FALSE(members.is_vacant(1));
  EXPECT_EQ(members.bring_back(1), (std::vector<Rank>{2, 3}));
  EXPECT_FALSE(members.has_vacant(1));
  EXPECT_TRUE(members.vacant().empty());
  EXPECT_TRUE(members.lost().empty());
  EXPECT_TRUE(members.lose(2)) << "from now on it may be lost";
  EXPECT_FALSE(members.is_vacant(2));
}

}  // namespace run_members_test
}  // namespace grapevine
