// The answer of a rank to the question what it does and waits for.
#include "actors/run/peer.hpp"

namespace grapevine {

// The next part of it, of which the first one has the length of all.
Awaited PeerState::awaited_state() const {
  Awaited awaited{view_.install.donor, PayloadKind::state_chunk};
  const auto parts_of = [part = config_.state_part_bytes](std::int64_t bytes) {
    return static_cast<std::int32_t>((bytes + part - 1) / part);
  };
  if (view_.state.arrived() == 0) return awaited;
  awaited.part = parts_of(view_.state.arrived()) + 1;
  awaited.parts = parts_of(view_.state.total());
  return awaited;
}

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
  if (view_.awaits_state) {
    report.waits = {awaited_state()};
    report.waiting_ns = (now() - view_.state_at).count();
  }
  report.holds_messages_back = stalls_.holds();
  report.queued_bytes = static_cast<std::int64_t>(config_.transport->queued_bytes());
  const auto asker = caf::actor_cast<WaitListener>(self_->current_sender());
  if (asker) self_->send(asker, std::move(report));
}

}  // namespace grapevine
