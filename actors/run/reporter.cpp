#include "actors/run/reporter.hpp"

#include <atomic>
#include <utility>

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include "actors/run/newest_figures.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {

struct ValidationReport {
  Epoch epoch = 0;
  Evaluation evaluation;
};
struct CheckpointReport {
  std::string path;
};
struct WarningReport {
  std::string message;
};
struct FiguresReady {  // in NewestFigures
  Rank rank = 0;
};
struct RankLost {
  Rank rank = 0;
};
struct SettingsChanged {
  LiveSettings changed;
};
struct RankReturned {
  Rank rank = 0;
};
struct RankJoined {
  Rank rank = 0;
};
struct StepsLost {
  std::int64_t count = 0;
};

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ValidationReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CheckpointReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::WarningReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FiguresReady)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankReturned)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankJoined)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SettingsChanged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StepsLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RunResult)

namespace grapevine {
namespace {

using ReporterActor = caf::typed_actor<
    caf::reacts_to<StepReport>, caf::reacts_to<ValidationReport>, caf::reacts_to<CheckpointReport>,
    caf::reacts_to<WarningReport>, caf::reacts_to<FiguresReady>, caf::reacts_to<RankLost>,
    caf::reacts_to<RankReturned>, caf::reacts_to<RankJoined>, caf::reacts_to<SettingsChanged>,
    caf::reacts_to<StepsLost>, caf::reacts_to<RunResult>>;

// Messages on their way to the Reporter. CAF's mailboxes have no bound of their own.
using Waiting = std::shared_ptr<std::atomic<std::int64_t>>;

ReporterActor::behavior_type reporter(ReporterActor::pointer self,
                                      const std::shared_ptr<RunReport>& report,
                                      const Waiting& waiting,
                                      const std::shared_ptr<NewestFigures>& newest) {
  const auto done = [report, waiting] {
    if (waiting->fetch_sub(1) == 1) report->on_idle();
  };
  self->set_exception_handler([report](std::exception_ptr& problem) -> caf::error {
    const std::string why = exception_line(problem);
    spdlog::error("nothing more is written about this run, as to metrics.csv: {}", why);
    report->on_failed(why);
    return caf::exit_reason::unhandled_exception;
  });
  return {
      [=](const StepReport& step) {
        report->on_step(step);
        done();
      },
      [=](const ValidationReport& validation) {
        report->on_validation(validation.epoch, validation.evaluation);
        done();
      },
      [=](const CheckpointReport& checkpoint) {
        report->on_checkpoint(checkpoint.path);
        done();
      },
      [=](const WarningReport& warning) {
        report->on_warning(warning.message);
        done();
      },
      [=](FiguresReady ready) {
        if (const auto figures = newest->take(ready.rank)) report->on_figures(*figures);
        done();
      },
      [=](RankLost lost) {
        report->on_rank_lost(lost.rank);
        done();
      },
      [=](RankReturned returned) {
        report->on_rank_returned(returned.rank);
        done();
      },
      [=](RankJoined joined) {
        report->on_rank_joined(joined.rank);
        done();
      },
      [=](const SettingsChanged& settings) {
        report->on_changed(settings.changed);
        done();
      },
      [=](StepsLost lost) {
        report->on_steps_lost(lost.count);
        done();
      },
      [=](RunResult& result) {
        report->on_end(std::move(result));
        self->quit();
      },
  };
}

// Called by one thread at a time, as every RunObserver is.
class AsideObserver : public ForwardingObserver {
 public:
  AsideObserver(std::shared_ptr<RunObserver> observer, ReporterActor reporter, Waiting waiting,
                std::shared_ptr<NewestFigures> newest, std::int64_t backlog)
      : ForwardingObserver(std::move(observer)),
        reporter_(std::move(reporter)),
        waiting_(std::move(waiting)),
        newest_(std::move(newest)),
        backlog_(backlog) {}

  void on_step(const StepReport& report) override {
    ForwardingObserver::on_step(report);
    if (*waiting_ >= backlog_) {
      ++lost_;
      return;
    }
    tell_loss();
    tell(report);
  }
  void on_figures(const RankFigures& figures) override {
    ForwardingObserver::on_figures(figures);
    if (newest_->put(figures)) tell(FiguresReady{figures.rank});
  }
  void on_rank_lost(Rank rank) override {
    ForwardingObserver::on_rank_lost(rank);
    tell(RankLost{rank});
  }
  void on_rank_returned(Rank rank) override {
    ForwardingObserver::on_rank_returned(rank);
    tell(RankReturned{rank});
  }
  void on_rank_joined(Rank rank) override {
    ForwardingObserver::on_rank_joined(rank);
    tell(RankJoined{rank});
  }
  void on_changed(const LiveSettings& changed) override {
    ForwardingObserver::on_changed(changed);
    tell(SettingsChanged{changed});
  }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    ForwardingObserver::on_validation(epoch, evaluation);
    tell(ValidationReport{epoch, evaluation});
  }
  void on_checkpoint(const std::string& path) override {
    ForwardingObserver::on_checkpoint(path);
    tell(CheckpointReport{path});
  }
  void on_warning(const std::string& message) override {
    ForwardingObserver::on_warning(message);
    tell(WarningReport{message});
  }
  void on_end(RunResult result) override {
    tell_loss();
    caf::anon_send(reporter_, result);
    ForwardingObserver::on_end(std::move(result));
  }

 private:
  template <class Message>
  void tell(Message message) {
    ++*waiting_;
    caf::anon_send(reporter_, std::move(message));
  }
  void tell_loss() {
    if (lost_ > 0) tell(StepsLost{std::exchange(lost_, 0)});
  }

  const ReporterActor reporter_;
  const Waiting waiting_;
  const std::shared_ptr<NewestFigures> newest_;
  const std::int64_t backlog_;
  std::int64_t lost_ = 0;  // steps, since the last one that was passed on
};

}  // namespace

std::shared_ptr<RunObserver> report_aside(caf::actor_system& system,
                                          std::shared_ptr<RunObserver> observer,
                                          std::shared_ptr<RunReport> report, std::int64_t backlog) {
  const auto waiting = std::make_shared<std::atomic<std::int64_t>>(0);
  const auto newest = std::make_shared<NewestFigures>();
  ReporterActor actor = system.spawn<caf::detached>(reporter, std::move(report), waiting, newest);
  return std::make_shared<AsideObserver>(std::move(observer), std::move(actor), waiting, newest,
                                         backlog);
}

}  // namespace grapevine
