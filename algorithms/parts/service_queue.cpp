#include "algorithms/parts/service_queue.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

void request_fields(Archive& a, ServiceRequest& request, std::optional<std::int64_t> offered) {
  a.whole("client", request.client, 0, std::numeric_limits<Rank>::max());
  a.whole("exchange", request.exchange);
  a.whole("arrival", request.arrival);
  a.whole("step", request.stamp.step);
  a.whole("version", request.stamp.version);
  a.whole("gradients", request.gradients);
  if (a.loads()) request.stamp.origin = request.client;
  if (offered) a.needs("update");
  if (offered || !a.loads()) a.vector("update", request.update, offered.value_or(0));
}

// Each of the listed ranks is one of the clients, and listed once.
void check_clients(Archive& a, const std::string& name, const std::vector<std::int64_t>& listed,
                   const std::vector<Rank>& clients) {
  std::set<std::int64_t> seen;
  for (const std::int64_t client : listed)
    a.require(
        std::binary_search(clients.begin(), clients.end(), client) && seen.insert(client).second,
        name,
        "lists rank " + std::to_string(client) + ", which is not a client or is listed twice");
}

}  // namespace

void client_rows(Archive& a, const std::string& name, std::vector<std::int64_t>& rows,
                 std::size_t columns, const std::vector<Rank>& clients) {
  a.list(name, rows);
  a.require(rows.size() % columns == 0, name, "has no rows of " + std::to_string(columns));
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < rows.size(); i += columns) first.push_back(rows[i]);
  check_clients(a, name, first, clients);
}

void ServiceQueue::push(ServiceRequest request) {
  for (const ServiceRequest& waiting : waiting_)
    GRAPEVINE_CHECK(waiting.client != request.client, "rank ", request.client,
                    " has two requests at once");
  request.arrival = arrivals_++;
  waiting_.push_back(std::move(request));
}

ServiceRequest ServiceQueue::pop() {
  ServiceRequest first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

std::vector<ServiceRequest> ServiceQueue::take_all() {
  std::vector<ServiceRequest> all(waiting_.begin(), waiting_.end());
  waiting_.clear();
  return all;
}

void ServiceQueue::remove(Rank client) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [=](const ServiceRequest& r) { return r.client == client; }),
                 waiting_.end());
}

void ServiceQueue::restart(Timestamp now) {
  for (ServiceRequest& request : waiting_) request.since = now;
}

void ServiceQueue::fields(Archive& a, std::optional<std::int64_t> offered,
                          const std::vector<Rank>& clients) {
  a.count("arrivals", arrivals_);
  a.counted(
      "waiting", "", waiting_,
      [offered](Archive& inner, ServiceRequest& request) {
        request_fields(inner, request, offered);
      },
      static_cast<std::int64_t>(clients.size()));
  std::vector<std::int64_t> listed;
  for (const ServiceRequest& request : waiting_) listed.push_back(request.client);
  check_clients(a, "waiting", listed, clients);
}

TimerId CriticalSections::open(Rank client, std::int64_t exchange) {
  open_[client] = {exchange, ++grants_};
  return grants_;
}

bool CriticalSections::is_open(Rank client, std::int64_t exchange) const {
  const auto section = open_.find(client);
  return section != open_.end() && section->second.exchange == exchange;
}

std::optional<Rank> CriticalSections::holder(TimerId grant) const {
  for (const auto& [client, section] : open_)
    if (section.grant == grant) return client;
  return std::nullopt;
}

std::map<Rank, std::int64_t> CriticalSections::holders() const {
  std::map<Rank, std::int64_t> exchanges;
  for (const auto& [client, section] : open_) exchanges.emplace(client, section.exchange);
  return exchanges;
}

std::vector<TimerId> CriticalSections::grants() const {
  std::vector<TimerId> out;
  for (const auto& [client, section] : open_) out.push_back(section.grant);
  return out;
}

void CriticalSections::fields(Archive& a, const std::vector<Rank>& clients) {
  std::vector<std::int64_t> open;
  for (const auto& [client, section] : open_)
    open.insert(open.end(), {client, section.exchange, section.grant});
  a.count("grants", grants_);
  client_rows(a, "open", open, 3, clients);
  if (!a.loads() || !a.ok()) return;
  open_.clear();
  for (std::size_t i = 0; i < open.size(); i += 3)
    open_[static_cast<Rank>(open[i])] = {open[i + 1], open[i + 2]};
}

}  // namespace grapevine
