// Control: the actor that answers questions about a run, and passes changes on.
#pragma once
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "actors/protocol/run.hpp"
#include "actors/run/control/control_hub.hpp"
#include "actors/run/control/run_board.hpp"
#include "actors/run/run_observer.hpp"

namespace grapevine {

// The supervisor that it asks.
struct AttachControl {
  SupervisorActor supervisor;
};
struct AskStatus {
  ControlHub::StatusPromise answer;
};
struct AskChange {
  ControlRequest request;
  ControlHub::ChangePromise answer;
};
// The time for answers of the ranks to a question is over.
struct SurveyOver {
  std::int64_t question = 0;
};
struct RankChange {
  enum class Kind { lost, returned, joined };
  Rank rank = 0;
  Kind kind = Kind::lost;
};
struct ControlEnd {};

using ControlActor = caf::typed_actor<caf::reacts_to<AttachControl>, caf::reacts_to<StepReport>,
                                      caf::reacts_to<RankFigures>, caf::reacts_to<WaitReport>,
                                      caf::reacts_to<RunEvent>, caf::reacts_to<RankChange>,
                                      caf::reacts_to<AskStatus>, caf::reacts_to<AskChange>,
                                      caf::reacts_to<SurveyOver>, caf::reacts_to<ControlEnd>>;

struct ControlConfig {
  std::int32_t workers = 1;
  std::int64_t run_start_ns = 0;  // of the actor system's clock
};

// For each question about the status it asks the supervisor, then all ranks what they wait for, and
// answers once all have answered, or the time is over: a rank without an answer is named by that. A
// question that comes meanwhile, or soon after, gets the same answer.
class ControlState {
 public:
  const char* name = "control";
  static constexpr Duration kAnswerTime = std::chrono::milliseconds(700);  // of the ranks
  static constexpr Duration kSupervisorTime = std::chrono::milliseconds(700);
  static constexpr Duration kChangeTime = std::chrono::milliseconds(1500);  // it may ask the ranks
  static constexpr Duration kFresh = std::chrono::milliseconds(200);  // answers that old are reused

  void init(ControlActor::stateful_pointer<ControlState> self, const ControlConfig& config);
  void attach(SupervisorActor supervisor);
  void on_step(const StepReport& report) { board_.on_step(report, now()); }
  void on_figures(const RankFigures& figures) { board_.on_figures(figures, now()); }
  void on_waits(const WaitReport& report);
  void on_event(RunEvent event);
  void on_rank(const RankChange& change);
  void on_ask_status(AskStatus ask);
  void on_ask_change(const AskChange& ask);
  void on_survey_over(const SurveyOver& over);
  void end();

 private:
  Timestamp now() const;
  void begin_survey(RunState state);
  void answer();
  void refuse(const Error& error);

  ControlActor::stateful_pointer<ControlState> self_ = nullptr;
  ControlConfig config_;
  SupervisorActor supervisor_;
  RunBoard board_;
  RunState state_;             // of the survey in progress
  std::int64_t question_ = 0;  // number of that survey; 0: none is in progress
  bool asking_ = false;        // the supervisor, or the ranks
  std::vector<ControlHub::StatusPromise> questioners_;
  std::optional<std::pair<Timestamp, RunStatus>> newest_;
};

ControlActor spawn_control(caf::actor_system& system, const ControlConfig& config);

// An observer that passes everything on to `observer`, and what Control needs to `control`, which
// ends behind on_end().
std::shared_ptr<RunObserver> report_to_control(std::shared_ptr<RunObserver> observer,
                                               ControlActor control);

// From now on `hub` asks `control`, which asks `supervisor`.
void connect_control(const ControlActor& control, SupervisorActor supervisor, ControlHub& hub);

}  // namespace grapevine
