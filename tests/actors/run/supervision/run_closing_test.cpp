// The end of a run waits for its trace and its processes, in any order, and not forever.
#include "actors/run/supervision/run_closing.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace grapevine {
namespace run_closing_test {

TEST(RunClosing, IsDoneOnceAllAreClosedInAnyOrder) {
  std::vector<std::int32_t> order = {0, 1, 2, 3};  // 0: the trace
  do {
    RunClosing closing;
    closing.begin(Timestamp(0), true, {1, 2, 3});
    for (const std::int32_t one : order) {
      EXPECT_FALSE(closing.done());
      if (one == 0) {
        closing.close_trace();
      } else {
        EXPECT_TRUE(closing.close_process(one));
        EXPECT_FALSE(closing.close_process(one)) << "closed before";
      }
    }
    EXPECT_TRUE(closing.done());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(RunClosing, NamesWhatIsOpenOnceItIsOverdue) {
  const Timestamp begin = std::chrono::seconds(5);
  RunClosing closing;
  closing.begin(begin, true, {2, 7});
  EXPECT_FALSE(closing.overdue(begin + std::chrono::seconds(10) - Duration(1)));
  EXPECT_TRUE(closing.overdue(begin + std::chrono::seconds(10)));
  EXPECT_EQ(closing.unclosed(),
            "after 10 s still not closed: the trace, process 2, process 7; its last trace records "
            "may be missing");
}

}  // namespace run_closing_test
}  // namespace grapevine
