// Reporter: calls the outputs of a run (console, files) on a thread of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <caf/typed_event_based_actor.hpp>

#include "actors/run/run_observer.hpp"

namespace grapevine {

// The files of a run, e.g. metrics.csv. Called by the Reporter, one call at a time, on its
// thread: a call may wait for a disk. on_end() is the last one.
class RunReport : public RunObserver {
 public:
  // The number of steps that are not reported: they arrived faster than they could be written.
  virtual void on_steps_lost(std::int64_t count) = 0;
  // All earlier calls have been passed on.
  virtual void on_idle() {}
  // A call has thrown, for that reason: no other follows. The reason is in the log.
  virtual void on_failed(const std::string& /*why*/) noexcept {}
};

// Steps that may wait for the Reporter, some 20 MB of them; later ones are counted and left out.
inline constexpr std::int64_t kLongestReportBacklog = 100'000;

// An observer that passes everything on to `observer`, at once, and to `report`, which a detached
// actor of `system` calls. Its calls never wait for `report`; of
// the figures of a rank only the newest wait. After on_end() the actor ends as soon
// as `report` has received all calls; `backlog`: of steps that wait meanwhile.
std::shared_ptr<RunObserver> report_aside(caf::actor_system& system,
                                          std::shared_ptr<RunObserver> observer,
                                          std::shared_ptr<RunReport> report,
                                          std::int64_t backlog = kLongestReportBacklog);

}  // namespace grapevine
