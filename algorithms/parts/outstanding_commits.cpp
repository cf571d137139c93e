#include "algorithms/parts/outstanding_commits.hpp"

#include <string>
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

StateDict OutstandingCommits::save() const {
  StateDict state;
  std::vector<std::int64_t> exchanges;
  for (const auto& [exchange, commit] : open_) {
    exchanges.push_back(exchange);
    StateDict entry;
    entry.put_list("steps", commit.steps);
    entry.put("due", commit.receipts_due);
    entry.put("refused", std::int64_t{commit.refused});
    state.put_all(std::to_string(exchange), entry);
  }
  state.put_list("exchanges", exchanges);
  return state;
}

Expected<void> OutstandingCommits::load(const StateDict& state, std::int32_t servers) {
  const auto exchanges = state.list("exchanges");
  if (!exchanges) return exchanges.error();
  std::map<std::int64_t, Pending> loaded;
  for (const std::int64_t exchange : *exchanges) {
    const StateDict entry = state.under(std::to_string(exchange));
    const auto due = entry.integer_in("due", 1, servers),
               refused = entry.integer_in("refused", 0, 1);
    for (const auto* field : {&due, &refused})
      if (!*field) return field->error();
    auto steps = entry.list("steps");
    if (!steps) return steps.error();
    loaded[exchange] = {std::move(*steps), *due, *refused != 0};
  }
  open_ = std::move(loaded);
  return {};
}

}  // namespace grapevine
