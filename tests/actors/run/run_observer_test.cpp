#include "actors/run/run_observer.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/control/control.hpp"
#include "actors/run/reporter.hpp"

namespace grapevine {
namespace run_observer_test {

// Keeps the calls, each with a part of its argument.
struct CallLog {
  void add(const std::string& name, const std::string& argument) {
    calls.push_back(name + " " + argument);
  }
  std::vector<std::string> calls;
};

template <class Base>
class Recording : public Base {
 public:
  explicit Recording(std::shared_ptr<CallLog> log) : log_(std::move(log)) {}
  void on_begun() override { log_->add("begun", "all"); }
  void on_step(const StepReport& report) override { add("step", report.step); }
  void on_figures(const RankFigures& figures) override { add("figures", figures.view); }
  void on_rank_lost(Rank rank) override { add("lost", rank); }
  void on_rank_returned(Rank rank) override { add("returned", rank); }
  void on_rank_joined(Rank rank) override { add("joined", rank); }
  void on_changed(const LiveSettings& changed) override {
    log_->add("changed", settings_text(changed));
  }
  void on_validation(Epoch epoch, const Evaluation&) override { add("validation", epoch); }
  void on_checkpoint(const std::string& path) override { log_->add("checkpoint", path); }
  void on_warning(const std::string& message) override { log_->add("warning", message); }
  void on_end(RunResult result) override { add("end", result.views); }

 private:
  void add(const std::string& name, std::int64_t argument) {
    log_->add(name, std::to_string(argument));
  }
  const std::shared_ptr<CallLog> log_;
};

class RecordingReport : public Recording<RunReport> {
 public:
  using Recording::Recording;
  void on_steps_lost(std::int64_t) override {}
};

// Every call of RunObserver, once.
void call_all(RunObserver& observer) {
  observer.on_begun();
  StepReport step;
  step.step = 1;
  observer.on_step(step);
  RankFigures figures;
  figures.view = 2;
  observer.on_figures(figures);
  observer.on_rank_lost(3);
  observer.on_rank_returned(4);
  observer.on_rank_joined(5);
  observer.on_changed({{"lr", "0.6"}});
  observer.on_validation(7, {});
  observer.on_checkpoint("eight");
  observer.on_warning("nine");
  RunResult result;
  result.views = 10;
  observer.on_end(result);
}

const std::vector<std::string>& all_calls() {
  static const std::vector<std::string> calls = {
      "begun all", "step 1",           "figures 2",    "lost 3",           "returned 4",
      "joined 5",  "changed lr = 0.6", "validation 7", "checkpoint eight", "warning nine",
      "end 10"};
  return calls;
}

class RunObservers : public testing::Test {
 protected:
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<CallLog> seen_ = std::make_shared<CallLog>();
  std::shared_ptr<RunObserver> inner_ = std::make_shared<Recording<RunObserver>>(seen_);
};

TEST_F(RunObservers, AForwardingObserverForwardsEveryCall) {
  ForwardingObserver observer(inner_);
  call_all(observer);
  EXPECT_EQ(seen_->calls, all_calls());
}

TEST_F(RunObservers, TheObserverBesideAReportForwardsEveryCallButTheBeginToBoth) {
  const auto reported = std::make_shared<CallLog>();
  call_all(*report_aside(system_, inner_, std::make_shared<RecordingReport>(reported)));
  system_.await_all_actors_done();
  EXPECT_EQ(seen_->calls, all_calls());
  std::vector<std::string> to_files = all_calls();
  to_files.erase(to_files.begin());  // they have no use for the begin
  EXPECT_EQ(reported->calls, to_files);
}

TEST_F(RunObservers, TheObserverOfControlForwardsEveryCall) {
  call_all(*report_to_control(inner_, spawn_control(system_, ControlConfig())));
  system_.await_all_actors_done();
  EXPECT_EQ(seen_->calls, all_calls());
}

}  // namespace run_observer_test
}  // namespace grapevine
