// RunFollower: an output of a run beside metrics.csv: TensorBoard's event files, a metrics
// endpoint.
#pragma once
#include "actors/protocol/supervisor.hpp"
#include "actors/run/control/live_settings.hpp"
#include "gpu/compute.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Called by the Reporter, one call at a time, as the run continues. A call may wait for a disk;
// nothing here may throw.
class RunFollower {
 public:
  virtual ~RunFollower() = default;
  // Every step of every rank; report.logged: metrics.csv has a row for it.
  virtual void on_step(const StepReport& report) = 0;
  // A rank's newest figures; not called for that rank between on_rank_lost() and
  // on_rank_returned(), from which on they are of its new life.
  virtual void on_figures(const RankFigures& /*figures*/) {}
  virtual void on_rank_lost(Rank /*rank*/) {}
  virtual void on_rank_returned(Rank /*rank*/) {}
  // These settings have changed, for all ranks.
  virtual void on_changed(const LiveSettings& /*changed*/) {}
  // Of the averaged model after `epoch`, from 0. `step`: rank 0's last of that epoch, or its newest
  // one where it is not that far.
  virtual void on_validation(Epoch epoch, Step step, const Evaluation& evaluation) = 0;
  virtual void on_checkpoint() {}
  virtual void on_warning() {}
  // The last call.
  virtual void on_end() {}
};

}  // namespace grapevine
