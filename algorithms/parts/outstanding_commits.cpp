#include "algorithms/parts/outstanding_commits.hpp"

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

void OutstandingCommits::send(std::int64_t exchange, std::vector<Step> steps,
                              std::int32_t servers) {
  open_[exchange] = {std::move(steps), servers, false};
}

std::optional<OutstandingCommits::Outcome> OutstandingCommits::on_receipt(std::int64_t exchange,
                                                                          bool accepted) {
  const auto found = open_.find(exchange);
  GRAPEVINE_CHECK(found != open_.end(), "a receipt for exchange ", exchange,
                  " without an outstanding commit");
  Pending& commit = found->second;
  commit.refused = commit.refused || !accepted;
  if (--commit.receipts_due > 0) return std::nullopt;
  Outcome outcome{std::move(commit.steps), commit.refused};
  open_.erase(found);
  return outcome;
}

std::vector<OutstandingCommits::Outcome> OutstandingCommits::take_all() {
  std::vector<Outcome> outcomes;
  for (auto& [exchange, commit] : open_)
    outcomes.push_back({std::move(commit.steps), commit.refused});
  open_.clear();
  return outcomes;
}

void OutstandingCommits::fields(Archive& a, std::int32_t servers) {
  a.keyed("exchanges", "", open_, [servers](Archive& inner, Pending& commit) {
    inner.list("steps", commit.steps);
    inner.whole("due", commit.receipts_due, 1, servers);
    inner.flag("refused", commit.refused);
  });
}

}  // namespace grapevine
