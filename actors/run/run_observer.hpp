// RunObserver: receives the events of a run, and ForwardingObserver, which passes them on.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "actors/protocol/processes.hpp"
#include "actors/protocol/supervisor.hpp"
#include "actors/record/rank_figures.hpp"
#include "actors/run/control/live_settings.hpp"
#include "actors/run/supervision/run_result.hpp"

namespace grapevine {

// Receives the events of a run from the Supervisor, one call at a time, on any thread.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // All processes that begin the run have joined: its ranks begin.
  virtual void on_begun() {}
  virtual void on_step(const StepReport& report) = 0;
  // A rank's figures so far, at most once a second of each rank, and its last ones.
  virtual void on_figures(const RankFigures& /*figures*/) {}
  // The run continues without the rank; no figures of it follow.
  virtual void on_rank_lost(Rank /*rank*/) {}
  // A lost rank takes part again; its figures begin anew.
  virtual void on_rank_returned(Rank /*rank*/) {}
  // A rank has taken a vacant place.
  virtual void on_rank_joined(Rank /*rank*/) {}
  // These settings have changed, for all ranks.
  virtual void on_changed(const LiveSettings& /*changed*/) {}
  // In a process that joins the run: a rank of it receives its state, and then takes part.
  virtual void on_state_arrival(const StateArrival& /*arrival*/) {}
  virtual void on_validation(Epoch epoch, const Evaluation& evaluation) = 0;
  virtual void on_checkpoint(const std::string& path) = 0;
  virtual void on_warning(const std::string& message) = 0;
  // The last call.
  virtual void on_end(RunResult result) = 0;
};

// Passes each call on to `inner` (not null). An observer that does something beside derives from
// this one, overrides the calls that it is for, and calls the function of this class in each.
class ForwardingObserver : public RunObserver {
 public:
  explicit ForwardingObserver(std::shared_ptr<RunObserver> inner) : inner_(std::move(inner)) {}

  void on_begun() override { inner_->on_begun(); }
  void on_step(const StepReport& report) override { inner_->on_step(report); }
  void on_figures(const RankFigures& figures) override { inner_->on_figures(figures); }
  void on_rank_lost(Rank rank) override { inner_->on_rank_lost(rank); }
  void on_rank_returned(Rank rank) override { inner_->on_rank_returned(rank); }
  void on_rank_joined(Rank rank) override { inner_->on_rank_joined(rank); }
  void on_changed(const LiveSettings& changed) override { inner_->on_changed(changed); }
  void on_state_arrival(const StateArrival& arrival) override { inner_->on_state_arrival(arrival); }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    inner_->on_validation(epoch, evaluation);
  }
  void on_checkpoint(const std::string& path) override { inner_->on_checkpoint(path); }
  void on_warning(const std::string& message) override { inner_->on_warning(message); }
  void on_end(RunResult result) override { inner_->on_end(std::move(result)); }

 private:
  const std::shared_ptr<RunObserver> inner_;
};

}  // namespace grapevine
