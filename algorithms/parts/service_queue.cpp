#include "algorithms/parts/service_queue.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMostArrivals = std::numeric_limits<std::int64_t>::max() / 2;

StateDict save_request(const ServiceRequest& request) {
  StateDict state;
  state.put("client", std::int64_t{request.client});
  state.put("exchange", request.exchange);
  state.put("arrival", request.arrival);
  state.put("step", request.stamp.step);
  state.put("version", request.stamp.version);
  state.put("gradients", request.gradients);
  if (request.update.defined()) state.put("update", request.update.read());
  return state;
}

Expected<ServiceRequest> load_request(const StateDict& state, std::optional<std::int64_t> offered) {
  const auto client = state.integer_in("client", 0, std::numeric_limits<Rank>::max()),
             exchange = state.integer("exchange"), arrival = state.integer("arrival"),
             step = state.integer("step"), version = state.integer("version"),
             gradients = state.integer("gradients");
  for (const auto* field : {&client, &exchange, &arrival, &step, &version, &gradients})
    if (!*field) return field->error();
  ServiceRequest request;
  request.client = static_cast<Rank>(*client);
  request.exchange = *exchange;
  request.arrival = *arrival;
  request.stamp.origin = request.client;
  request.stamp.step = *step;
  request.stamp.version = *version;
  request.gradients = *gradients;
  if (offered) {
    const auto update = state.flat_tensor("update", *offered);
    if (!update) return update.error();
    request.update = FrozenTensor::copy_of(*update);
  }
  return request;
}

}  // namespace

Expected<std::vector<std::int64_t>> load_rows(const StateDict& state, const std::string& name,
                                              std::size_t columns,
                                              const std::vector<Rank>& clients) {
  auto rows = state.list(name);
  if (!rows) return rows;
  const std::string advice = ": the checkpoint is damaged, resume from another one";
  if (rows->size() % columns != 0)
    return bad_input("entry '" + name + "' of the saved state has no rows of " +
                     std::to_string(columns) + advice);
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < rows->size(); i += columns) {
    const std::int64_t client = (*rows)[i];
    if (!std::binary_search(clients.begin(), clients.end(), client) || !seen.insert(client).second)
      return bad_input("entry '" + name + "' of the saved state lists rank " +
                       std::to_string(client) + ", which is not a client or is listed twice" +
                       advice);
  }
  return rows;
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

StateDict ServiceQueue::save() const {
  StateDict state;
  state.put("arrivals", arrivals_);
  state.put("waiting", static_cast<std::int64_t>(waiting_.size()));
  for (std::size_t i = 0; i < waiting_.size(); ++i)
    state.put_all(std::to_string(i), save_request(waiting_[i]));
  return state;
}

Expected<void> ServiceQueue::load(const StateDict& state, std::optional<std::int64_t> offered,
                                  const std::vector<Rank>& clients) {
  const auto arrivals = state.integer_in("arrivals", 0, kMostArrivals),
             waiting = state.integer_in("waiting", 0, static_cast<std::int64_t>(clients.size()));
  for (const auto* field : {&arrivals, &waiting})
    if (!*field) return field->error();
  std::deque<ServiceRequest> loaded;
  for (std::int64_t i = 0; i < *waiting; ++i) {
    auto request = load_request(state.under(std::to_string(i)), offered);
    if (!request) return request.error();
    const Rank client = request->client;
    const auto is_same = [client](const ServiceRequest& r) { return r.client == client; };
    if (!std::binary_search(clients.begin(), clients.end(), client) ||
        std::any_of(loaded.begin(), loaded.end(), is_same))
      return bad_input(
          "the saved queue lists rank " + std::to_string(client) +
          ", which is not a client or is listed twice: the checkpoint is damaged, resume "
          "from another one");
    loaded.push_back(std::move(*request));
  }
  arrivals_ = *arrivals;
  waiting_ = std::move(loaded);
  return {};
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

std::vector<TimerId> CriticalSections::grants() const {
  std::vector<TimerId> out;
  for (const auto& [client, section] : open_) out.push_back(section.grant);
  return out;
}

StateDict CriticalSections::save() const {
  StateDict state;
  std::vector<std::int64_t> open;
  for (const auto& [client, section] : open_)
    open.insert(open.end(), {client, section.exchange, section.grant});
  state.put("grants", grants_);
  state.put_list("open", open);
  return state;
}

Expected<void> CriticalSections::load(const StateDict& state, const std::vector<Rank>& clients) {
  const auto grants = state.integer_in("grants", 0, kMostArrivals);
  if (!grants) return grants.error();
  const auto open = load_rows(state, "open", 3, clients);
  if (!open) return open.error();
  std::map<Rank, Section> loaded;
  for (std::size_t i = 0; i < open->size(); i += 3)
    loaded[static_cast<Rank>((*open)[i])] = {(*open)[i + 1], (*open)[i + 2]};
  grants_ = *grants;
  open_ = std::move(loaded);
  return {};
}

}  // namespace grapevine
