#include "algorithms/roles/server/served_clients.hpp"

#include <algorithm>

#include "algorithms/parts/service_queue.hpp"
#include "messages/check.hpp"

namespace grapevine {

bool ServedClients::has(Rank rank) const {
  return std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

std::int32_t ServedClients::number_of(Rank rank) const {
  GRAPEVINE_CHECK(has(rank), "rank ", rank, " is no client");
  return static_cast<std::int32_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) -
                                   ranks_.begin());
}

std::int64_t ServedClients::staleness(Rank rank, Version now, Version then) const {
  const auto own = newest_.find(rank);
  const bool counts = own != newest_.end() && own->second > then;
  return now - then - (counts ? 1 : 0);
}

void ServedClients::fields(Archive& a, const std::vector<Rank>& known) {
  std::vector<std::int64_t> own, left(left_.begin(), left_.end());
  for (const auto& [client, version] : newest_) own.insert(own.end(), {client, version});
  client_rows(a, "own", own, 2, known);
  client_rows(a, "left", left, 1, known);
  if (!a.loads() || !a.ok()) return;
  newest_.clear();
  for (std::size_t i = 0; i < own.size(); i += 2) newest_[static_cast<Rank>(own[i])] = own[i + 1];
  left_.clear();
  for (const std::int64_t client : left) left_.insert(static_cast<Rank>(client));
}

}  // namespace grapevine
