#include "actors/run/supervision/final_reports.hpp"

#include <utility>

namespace grapevine {

void FinalReports::begin_round() {
  in_round_ = true;
  reports_.clear();
}

void FinalReports::add(RankReport& report) {
  const Rank rank = report.rank;
  reports_[rank] = std::move(report);
}

FinalReports::Next FinalReports::evaluate(const RunMembers& members) {
  if (!members.all_in(reports_)) return Next::wait;
  in_round_ = false;
  if (with_models_) {
    balanced_ = true;
    return Next::complete;
  }
  std::int64_t sent = 0, received = 0;
  for (const auto& [rank, report] : reports_) {
    sent += report.ledger.sent;
    received += report.ledger.received;
  }
  with_models_ = sent == received && sent == last_sent_;
  last_sent_ = sent == received ? sent : -1;
  return with_models_ ? Next::ask_models : Next::ask_later;
}

}  // namespace grapevine
