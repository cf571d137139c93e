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

// What process 0 would refuse on another machine, where neither its files nor its GPUs are here.
TEST(TrainJob, NamesAndAddressesAreCheckedWithoutTheMachineOfTheJob) {
  using Member = std::string TrainOptions::*;
  struct Case {
    Member member;
    std::string value;
    std::string error;  // empty: valid
  };
  for (const Case& c : std::vector<Case>{
           {&TrainOptions::delay, "rank=700:20ms,random=3:1ms", ""},
           {&TrainOptions::delay, "stall=server:9@3:1s,stall=compute:2@4:1s", ""},
           {&TrainOptions::delay, "stall=link:0-5@3:1s,length", ""},
           {&TrainOptions::delay, "rank=1", "--delay 'rank=1'"},
           {&TrainOptions::delay, "length,slow=1:20ms", "--delay kind 'slow'"},
           {&TrainOptions::delay, "stall=server:0@3:1s",
            "stall=server:R@STEP:DUR, with ranks of the job: first its workers, from 0, then its "
            "servers"},
           {&TrainOptions::device, "auto", ""},
           {&TrainOptions::device, "cuda:7", ""},
           {&TrainOptions::device, "cuda:x", "--device cuda:x"},
           {&TrainOptions::device, "cuda:-1", "--device cuda:-1: expected cpu, cuda"},
           {&TrainOptions::device, "cuda:127", "--device cuda:127: no machine has so many GPUs"},
           {&TrainOptions::device, "cuda:99999999999", "expected cpu, cuda, cuda:INDEX or auto"},
           {&TrainOptions::device, "gpu", "--device 'gpu'"},
           {&TrainOptions::model, "mlp", ""},
           {&TrainOptions::model, "not-here.pt", ""},
           {&TrainOptions::model, "models/not-here", ""},
           {&TrainOptions::model, "lenett", "model 'lenett'"},
           {&TrainOptions::control, "0.0.0.0:0", ""},
           {&TrainOptions::control, "here", "--control"},
           {&TrainOptions::metrics_port, "9100", ""},
           {&TrainOptions::metrics_port, "here:many", "--metrics-port"}}) {
    TrainOptions options;
    options.*c.member = c.value;
    const auto checked = check_train_options(options);
    EXPECT_EQ(checked.ok(), c.error.empty()) << c.value;
    if (checked) continue;
    EXPECT_EQ(checked.error().code, Errc::bad_input) << c.value;
    EXPECT_NE(checked.error().message.find(c.error), std::string::npos) << checked.error().message;
  }
}

}  // namespace train_job_test
}  // namespace grapevine
