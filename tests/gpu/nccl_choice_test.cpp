#include "gpu/nccl_choice.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace {

bool mentions(const NcclChoice& choice, const std::string& what) {
  return choice.why.find(what) != std::string::npos && choice.why.find('\n') == std::string::npos;
}

TEST(NcclChoice, ACardForEachRankOfOneMachineIsNccl) {
  const NcclChoice choice = choose_nccl({{"a", "GPU-1"}, {"a", "GPU-2"}, {"a", "GPU-3"}}, true);
  EXPECT_TRUE(choice.nccl);
  EXPECT_TRUE(mentions(choice, "3 ranks")) << choice.why;
}

TEST(NcclChoice, SharedCardsGoThroughTheHostAndAreNamed) {
  const NcclChoice choice = choose_nccl({{"a", "GPU-1"}, {"a", "GPU-2"}, {"a", "GPU-1"}}, true);
  EXPECT_FALSE(choice.nccl);
  EXPECT_TRUE(mentions(choice, "ranks 0 and 2 share the card GPU-1 of a")) << choice.why;
}

TEST(NcclChoice, TheRestGoesThroughTheHostAndSaysWhy) {
  EXPECT_TRUE(
      mentions(choose_nccl({{"a", "GPU-1"}, {"a", ""}}, true), "rank 1 computes on the CPU"));
  EXPECT_TRUE(mentions(choose_nccl({{"a", "1"}, {"b", "2"}}, true), "rank 1 is on b, rank 0 on a"));
  EXPECT_TRUE(mentions(choose_nccl({{"a", "1"}, {"a", "2"}}, false), "no NCCL"));
  EXPECT_TRUE(mentions(choose_nccl({{"a", "1"}}, true), "nobody"));
  EXPECT_FALSE(choose_nccl({}, true).nccl);
  for (const auto& places :
       {std::vector<RankPlace>{{"a", "1"}, {"a", ""}},
        std::vector<RankPlace>{{"a", "1"}, {"b", "2"}}, std::vector<RankPlace>{{"a", "1"}}})
    EXPECT_FALSE(choose_nccl(places, true).nccl);
  EXPECT_FALSE(choose_nccl({{"a", "1"}, {"a", "2"}}, false).nccl);
}

}  // namespace
}  // namespace grapevine
