// The answer of a rank to the question what it does and waits for.
#include "actors/run/peer.hpp"

namespace grapevine {

void PeerState::on_query_waits(QueryWaits query) const {
  WaitReport report;
  report.question = query.question;
  report.rank = config_.rank;
  report.step = model_.step;
  if (asked_) {
    report.computing = *asked_;
    report.computing_ns = (now() - asked_at_).count();
    report.worker = config_.worker.activity->load();
    // The request may be on its way to the worker.
    if (report.worker == WorkerActivity::idle) report.worker = WorkerActivity::computing;
    if (report.worker == WorkerActivity::computing && config_.worker.compute->reads())
      report.worker = WorkerActivity::reading;
  }
  if (role_) report.waits = role_->waits();
  if (const auto since = meter_.waiting_since(); since && !report.waits.empty())
    report.waiting_ns = (now() - *since).count();
  if (member_.is_holding()) report.view = member_.number();
  report.holds_messages_back = stalls_.holds();
  report.queued_bytes = static_cast<std::int64_t>(config_.transport->queued_bytes());
  const auto asker = caf::actor_cast<WaitListener>(self_->current_sender());
  if (asker) self_->send(asker, std::move(report));
}

}  // namespace grapevine
