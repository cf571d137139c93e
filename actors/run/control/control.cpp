#include "actors/run/control/control.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>

#include "actors/clock_time.hpp"
#include "actors/run/validate.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/text/control_characters.hpp"

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AttachControl)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskChange)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SurveyOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RunEvent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankChange)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ControlEnd)

namespace grapevine {
namespace {

const char kEnded[] = "the run has ended";
const char kBusy[] = "process 0 of the run does not answer: it is overloaded";

// Of a supervisor that was asked.
Error no_answer(const caf::error& error) {
  if (error == caf::sec::request_timeout) return {Errc::timeout, kBusy};
  return bad_input(kEnded);
}

// Called by one thread at a time, as every RunObserver is.
class ControlObserver : public ForwardingObserver {
 public:
  ControlObserver(std::shared_ptr<RunObserver> observer, ControlActor control)
      : ForwardingObserver(std::move(observer)), control_(std::move(control)) {}

  void on_step(const StepReport& report) override {
    ForwardingObserver::on_step(report);
    caf::anon_send(control_, report);
  }
  void on_figures(const RankFigures& figures) override {
    ForwardingObserver::on_figures(figures);
    caf::anon_send(control_, figures);
  }
  void on_rank_lost(Rank rank) override {
    ForwardingObserver::on_rank_lost(rank);
    caf::anon_send(control_, RankChange{rank, RankChange::Kind::lost});
  }
  void on_rank_returned(Rank rank) override {
    ForwardingObserver::on_rank_returned(rank);
    caf::anon_send(control_, RankChange{rank, RankChange::Kind::returned});
  }
  void on_rank_joined(Rank rank) override {
    ForwardingObserver::on_rank_joined(rank);
    caf::anon_send(control_, RankChange{rank, RankChange::Kind::joined});
  }
  void on_changed(const LiveSettings& changed) override {
    ForwardingObserver::on_changed(changed);
    note("change", settings_text(changed) + ", in effect");
  }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    ForwardingObserver::on_validation(epoch, evaluation);
    note("validation", fmt::format("epoch {}: test accuracy {:.4f}, test loss {:.4f}", epoch + 1,
                                   evaluation.top1, evaluation.loss));
  }
  void on_checkpoint(const std::string& path) override {
    ForwardingObserver::on_checkpoint(path);
    note("checkpoint", path);
  }
  void on_warning(const std::string& message) override {
    ForwardingObserver::on_warning(message);
    note("warning", message);
  }
  void on_end(RunResult result) override {
    caf::anon_send(control_, ControlEnd{});
    ForwardingObserver::on_end(std::move(result));
  }

 private:
  void note(std::string kind, std::string text) const {
    caf::anon_send(control_, RunEvent{std::move(kind), one_line(std::move(text)), 0});
  }

  const ControlActor control_;
};

class ControlLine : public ControlHub::Line {
 public:
  explicit ControlLine(ControlActor control) : control_(std::move(control)) {}
  void ask_status(ControlHub::StatusPromise answer) override {
    caf::anon_send(control_, AskStatus{std::move(answer)});
  }
  void ask_change(ControlRequest request, ControlHub::ChangePromise answer) override {
    caf::anon_send(control_, AskChange{std::move(request), std::move(answer)});
  }

 private:
  const ControlActor control_;
};

ControlActor::behavior_type control(ControlActor::stateful_pointer<ControlState> self,
                                    const ControlConfig& config) {
  ControlState& state = self->state;
  state.init(self, config);
  ignore_unexpected_messages(*self);
  return {
      [&state](AttachControl& attach) { state.attach(std::move(attach.supervisor)); },
      [&state](const StepReport& report) { state.on_step(report); },
      [&state](const RankFigures& figures) { state.on_figures(figures); },
      [&state](const WaitReport& report) { state.on_waits(report); },
      [&state](RunEvent& event) { state.on_event(std::move(event)); },
      [&state](const RankChange& change) { state.on_rank(change); },
      [&state](AskStatus& ask) { state.on_ask_status(std::move(ask)); },
      [&state](const AskChange& ask) { state.on_ask_change(ask); },
      [&state](const SurveyOver& over) { state.on_survey_over(over); },
      [&state](ControlEnd) { state.end(); },
  };
}

}  // namespace

void ControlState::init(ControlActor::stateful_pointer<ControlState> self,
                        const ControlConfig& config) {
  self_ = self;
  config_ = config;
  board_ = RunBoard(config.workers);
}

void ControlState::attach(SupervisorActor supervisor) { supervisor_ = std::move(supervisor); }

Timestamp ControlState::now() const {
  return clock_time(self_->clock()) - Duration(config_.run_start_ns);
}

void ControlState::on_event(RunEvent event) {
  event.time_s = to_seconds(now());
  board_.add(std::move(event));
}

void ControlState::on_rank(const RankChange& change) {
  const bool is_lost = change.kind == RankChange::Kind::lost;
  is_lost ? board_.on_lost(change.rank) : board_.on_returned(change.rank);
  const char* const kind = is_lost                                     ? "lost"
                           : change.kind == RankChange::Kind::returned ? "returned"
                                                                       : "joined";
  on_event({kind, "rank " + std::to_string(change.rank), 0});
}

void ControlState::on_ask_status(AskStatus ask) {
  if (newest_ && now() - newest_->first < kFresh) return ask.answer->set_value(newest_->second);
  questioners_.push_back(std::move(ask.answer));
  if (std::exchange(asking_, true)) return;
  self_->request(supervisor_, kSupervisorTime, AskRunState{})
      .then([this](RunState& state) { begin_survey(std::move(state)); },
            [this](const caf::error& error) { refuse(no_answer(error)); });
}

void ControlState::begin_survey(RunState state) {
  state_ = std::move(state);
  std::set<Rank> asked;
  for (Rank rank = 0; rank < static_cast<Rank>(state_.peers.size()); ++rank)
    if (state_.lost.count(rank) == 0) asked.insert(rank);
  question_ = board_.ask(asked, now());
  for (const Rank rank : asked)
    self_->send(state_.peers[static_cast<std::size_t>(rank)], QueryWaits{question_});
  if (asked.empty()) return answer();
  self_->delayed_send(ControlActor{self_}, kAnswerTime, SurveyOver{question_});
}

// Of a rank of another process as well: what is not of this run is ignored.
void ControlState::on_waits(const WaitReport& report) {
  World world;
  world.ranks = static_cast<std::int32_t>(state_.process_of.size());
  world.servers = world.ranks - state_.workers;
  if (!check(report, world) || !board_.add(report, now())) return;
  if (question_ != 0 && board_.all_answered()) answer();
}

void ControlState::on_survey_over(const SurveyOver& over) {
  if (over.question == question_) answer();
}

void ControlState::answer() {
  question_ = 0;
  asking_ = false;
  newest_.emplace(now(), board_.status(state_, now()));
  state_.peers.clear();  // actors of a run must not outlive it here
  for (const auto& questioner : std::exchange(questioners_, {}))
    questioner->set_value(newest_->second);
}

void ControlState::refuse(const Error& error) {
  asking_ = false;
  for (const auto& questioner : std::exchange(questioners_, {})) questioner->set_value(error);
}

void ControlState::on_ask_change(const AskChange& ask) {
  self_->request(supervisor_, kChangeTime, ask.request)
      .then(
          [this, answer = ask.answer](ControlReply& reply) {
            newest_.reset();
            if (reply.refused) return answer->set_value(bad_input(std::move(reply.text)));
            on_event({"change", reply.text, 0});
            answer->set_value(std::move(reply.text));
          },
          [answer = ask.answer](const caf::error& error) { answer->set_value(no_answer(error)); });
}

void ControlState::end() {
  refuse(bad_input(kEnded));
  self_->quit();
}

ControlActor spawn_control(caf::actor_system& system, const ControlConfig& config) {
  return system.spawn(control, config);
}

std::shared_ptr<RunObserver> report_to_control(std::shared_ptr<RunObserver> observer,
                                               ControlActor control) {
  return std::make_shared<ControlObserver>(std::move(observer), std::move(control));
}

void connect_control(const ControlActor& control, SupervisorActor supervisor, ControlHub& hub) {
  caf::anon_send(control, AttachControl{std::move(supervisor)});
  hub.attach(std::make_unique<ControlLine>(control));
}

}  // namespace grapevine
