// Waits that are longer than usual: the messages of the supervisor's WaitWatch.
#include <fmt/format.h>

#include <algorithm>

#include "actors/run/supervisor.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

void SupervisorState::begin_wait_watch() {
  std::vector<std::int32_t> process_of;
  for (Rank rank = 0; rank < members_.ranks(); ++rank)
    process_of.push_back(members_.process_of(rank));
  waits_.begin(process_of, members_.workers(), now());
  for (Rank rank = 0; rank < members_.ranks(); ++rank)
    if (!members_.is_lost(rank)) hear(rank);
}

// The answers to the last question first: there was time for them to come.
void SupervisorState::watch_waits() {
  if (stage_ != Stage::running) return;
  if (const auto finding = waits_.look(now())) {
    if (finding->ends) return fail_over_wait(*finding);
    config_.observer->on_warning(finding->text);
  }
  if (const auto question = waits_.ask(now())) crew_.send_to_ranks(QueryWaits{*question});
}

// While a state is on its way to a rank, the others may wait for that rank, and none takes a step.
void SupervisorState::on_waits(const WaitReport& report) {
  waits_.add(report, now());
  last_news_ = std::max(last_news_, waits_.state_at());
  hear(report.rank);
}

// fail() adds the checkpoint to the error of a lost process or link.
void SupervisorState::fail_over_wait(const WaitWatch::Finding& finding) {
  const std::string text = fmt::format("{}; --stall-abort {} ends the run", finding.text,
                                       number_text(to_seconds(*config_.stall_abort)));
  // It cannot close its trace.
  if (finding.unreachable > 0) report_process_lost(finding.unreachable);
  if (finding.is_lost) return fail({Errc::peer_down, text});
  fail({Errc::timeout, text + resume_hint_now()});
}

}  // namespace grapevine
