// What is known of a job before its data.
#include "apps/train/train_job.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace train_job_test {

// An epoch may have any number of steps.
TEST(TrainJob, MilestonesAscendAmongThoseOfTheirUnit) {
  for (const auto& [spec, valid] :
       std::vector<std::pair<std::string, bool>>{{"step:0.1@2,3", true},
                                                 {"step:0.1@2,300s", true},
                                                 {"step:0.1@300s,2", true},
                                                 {"step:0.1@300s,2,400s,3", true},
                                                 {"step:0.1@300s,400s", true},
                                                 {"step:0.1@3,2", false},
                                                 {"step:0.1@300s,2,100s", false},
                                                 {"step:0.1@3,300s,2", false},
                                                 {"step:0.1@300s,", false},
                                                 {"step:0.1@300s,,2", false},
                                                 {"step:0.1@300s,x", false},
                                                 {"step:0.1@300s,0", false},
                                                 {"step:0.1@", false},
                                                 {"step:x@300s,2", false},
                                                 {"exponential:0.5@300s,2", false}}) {
    TrainOptions options;
    options.lr_schedule = spec;
    const auto checked = check_train_options(options);
    EXPECT_EQ(checked.ok(), valid) << spec;
    if (!checked) {
      EXPECT_NE(checked.error().message.find("'" + spec + "'"), std::string::npos)
          << checked.error().message;
    }
  }
}

}  // namespace train_job_test
}  // namespace grapevine
