// The Reporter: what writes for people and files may stand still, the supervisor does not.
#include "actors/run/reporter.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace grapevine {
namespace reporter_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

// A disk that takes nothing until it is let go.
class Disk : public RunReport {
 public:
  void on_step(const StepReport& report) override {
    wait();
    steps.push_back(report.step);
  }
  void on_figures(const RankFigures& figures) override { this->figures.push_back(figures); }
  void on_rank_lost(Rank) override { others.push_back(-3); }
  void on_validation(Epoch epoch, const Evaluation&) override { others.push_back(epoch); }
  void on_checkpoint(const std::string&) override {
    if (!fails.empty()) throw std::runtime_error(fails);
    others.push_back(-1);
  }
  void on_warning(const std::string&) override { others.push_back(-2); }
  void on_steps_lost(std::int64_t count) override {
    lost += count;
    lost_at.push_back(static_cast<std::int64_t>(steps.size()));
  }
  void on_idle() override { ++idle; }
  void on_end(RunResult) override { ended_.set_value(); }
  void on_failed(const std::string& why) noexcept override {
    failure = why;
    ended_.set_value();
  }

  void let_go() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  bool ended() { return end_.wait_for(kDeadline) == std::future_status::ready; }

  // After the end.
  std::vector<Step> steps;
  std::vector<RankFigures> figures;
  std::vector<std::int64_t> others, lost_at;
  std::int64_t lost = 0;
  int idle = 0;
  std::string failure;
  std::string fails;  // with that text, at a checkpoint; empty: it does not

 private:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::promise<void> ended_;
  std::future<void> end_ = ended_.get_future();
};

// The supervisor's side.
class Heard : public RunObserver {
 public:
  void on_step(const StepReport&) override { ++steps; }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { seconds = result.seconds; }
  std::int64_t steps = 0;
  double seconds = 0;
};

StepReport step(Step number) {
  StepReport report;
  report.step = number;
  return report;
}

class ReporterTest : public testing::Test {
 protected:
  // Calls the observer, on a thread of its own: a call that waits would hang the test.
  template <class Calls>
  bool done_in_time(Calls calls) {
    auto done = std::async(std::launch::async, calls);
    const bool in_time = done.wait_for(kDeadline) == std::future_status::ready;
    if (!in_time) disk_->let_go();
    return in_time;
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
};

TEST_F(ReporterTest, ADiskThatStandsStillHoldsNobodyUp) {
  constexpr std::int64_t kBacklog = 100, kSteps = 1000;
  const auto observer = report_aside(system_, heard_, disk_, kBacklog);
  ASSERT_TRUE(done_in_time([&] {
    for (Step i = 0; i < kSteps; ++i) observer->on_step(step(i));
    observer->on_checkpoint("somewhere");
    RunResult result;
    result.seconds = 7;
    observer->on_end(result);
  }));
  EXPECT_EQ(heard_->steps, kSteps);
  EXPECT_EQ(heard_->seconds, 7) << "the end is told at once";
  disk_->let_go();
  ASSERT_TRUE(disk_->ended());
  system_.await_all_actors_done();
  EXPECT_EQ(disk_->others, std::vector<std::int64_t>{-1}) << "the checkpoint";
  EXPECT_GE(static_cast<std::int64_t>(disk_->steps.size()), kBacklog);
  EXPECT_LE(static_cast<std::int64_t>(disk_->steps.size()), kBacklog + 1);
  EXPECT_EQ(disk_->lost, kSteps - static_cast<std::int64_t>(disk_->steps.size())) << "all or told";
  for (std::size_t i = 0; i < disk_->steps.size(); ++i)
    EXPECT_EQ(disk_->steps[i], static_cast<Step>(i)) << "the oldest stay, in order";
}

TEST_F(ReporterTest, OnlyTheNewestFiguresOfARankWait) {
  const auto observer = report_aside(system_, heard_, disk_);
  observer->on_step(step(0));  // it stands still from here
  for (std::int64_t view = 0; view < 100; ++view)
    for (const Rank rank : {0, 1}) {
      RankFigures figures;
      figures.rank = rank;
      figures.view = view;
      observer->on_figures(figures);
    }
  observer->on_rank_lost(1);
  observer->on_end({});
  disk_->let_go();
  ASSERT_TRUE(disk_->ended());
  system_.await_all_actors_done();
  ASSERT_EQ(disk_->figures.size(), 2U);
  for (const RankFigures& figures : disk_->figures) EXPECT_EQ(figures.view, 99);
  EXPECT_EQ(disk_->others, std::vector<std::int64_t>{-3});
}

// Loss is told where it happened, before the next step.
TEST_F(ReporterTest, LossIsToldBeforeWhatFollows) {
  constexpr std::int64_t kBacklog = 10;
  const auto observer = report_aside(system_, heard_, disk_, kBacklog);
  for (Step i = 0; i < 50; ++i) observer->on_step(step(i));
  disk_->let_go();
  // Until there is room again.
  Step next = 50;
  for (const auto give_up = std::chrono::steady_clock::now() + kDeadline;
       std::chrono::steady_clock::now() < give_up && next < 5000; ++next) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    observer->on_step(step(next));
    if (next > 100) break;
  }
  observer->on_end({});
  ASSERT_TRUE(disk_->ended());
  system_.await_all_actors_done();
  ASSERT_FALSE(disk_->lost_at.empty());
  EXPECT_LE(disk_->lost_at.front(), kBacklog + 1);
  EXPECT_EQ(disk_->lost + static_cast<std::int64_t>(disk_->steps.size()), next + 1);
  EXPECT_GE(disk_->idle, 1);
}

TEST_F(ReporterTest, AnExceptionIsNamedAndEndsTheReport) {
  disk_->let_go();
  disk_->fails = "no space\nin frame 7";
  const auto observer = report_aside(system_, heard_, disk_);
  observer->on_checkpoint("somewhere");
  observer->on_validation(1, {});
  observer->on_end({});
  ASSERT_TRUE(disk_->ended());
  system_.await_all_actors_done();
  EXPECT_EQ(disk_->failure, "no space");
  EXPECT_TRUE(disk_->others.empty()) << "nothing follows";
}

TEST_F(ReporterTest, EverythingComesInOrderAndTheEndLast) {
  disk_->let_go();
  const auto observer = report_aside(system_, heard_, disk_);
  for (Step i = 0; i < 2000; ++i) {
    observer->on_step(step(i));
    if (i % 500 == 0) observer->on_validation(i, {});
  }
  observer->on_warning("something");
  observer->on_end({});
  ASSERT_TRUE(disk_->ended());
  system_.await_all_actors_done();
  EXPECT_EQ(disk_->steps.size(), 2000U);
  EXPECT_EQ(disk_->others, (std::vector<std::int64_t>{0, 500, 1000, 1500, -2}));
  EXPECT_EQ(disk_->lost, 0);
  EXPECT_GE(disk_->idle, 1);
}

}  // namespace reporter_test
}  // namespace grapevine
