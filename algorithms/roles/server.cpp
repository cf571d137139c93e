#include "algorithms/roles/server.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "algorithms/kernels.hpp"
#include "algorithms/server_rules.hpp"

namespace grapevine {

Server::Server(std::shared_ptr<const SharedParts> parts, Rank rank, std::vector<Rank> clients,
               std::int32_t index, ModelState& model)
    : parts_(std::move(parts)),
      rank_(rank),
      clients_(std::move(clients)),
      model_(model),
      meter_(static_cast<std::int32_t>(clients_.size())) {
  const Slice slice = slice_of(model_.x.numel(), parts_->plan.servers, index);
  model_.x = FrozenTensor::copy_of(model_.x.read().narrow(0, slice.begin, slice.size));
}

// After a checkpoint the grants count anew. Clients that are done say so again; where all were,
// they may go on.
void Server::on_start(Env& env) {
  for (auto& [client, section] : open_) {
    section.since = env.now();
    env.after(from_seconds(parts_->plan.section_timeout), section.grant);
  }
  busy_since_ = env.now();
  for (Request& request : queue_) request.since = env.now();
  if (std::exchange(finished_, false)) left_.clear();
}

void Server::on_gradient(Env&, Gradient) {
  GRAPEVINE_CHECK(false, "a server has no worker, and got a gradient");
}

// ---- the queue ----

void Server::on_message(Env& env, Envelope envelope) {
  const Rank client = envelope.from;
  if (!env.membership().is_alive(client)) return;  // nobody would take the answer
  if (const auto* ask = std::get_if<Ask>(&envelope.payload)) {
    enqueue(env, client, envelope.stamp, ask->exchange, 0, {});
  } else if (auto* commit = std::get_if<Commit>(&envelope.payload)) {
    GRAPEVINE_CHECK(commit->update.numel() == model_.x.numel(), "rank ", client,
                    " sent an update of another size");
    if (takes_offers())
      enqueue(env, client, envelope.stamp, commit->exchange, commit->gradients,
              std::move(commit->update));
    else
      take_commit(env, client, envelope.stamp, std::move(*commit));
  } else if (std::holds_alternative<Leave>(envelope.payload)) {
    left_.insert(client);
    meter_.client_left();
    serve(env);
    finish_if_all_left(env);
  } else {
    GRAPEVINE_CHECK(false, "a server got something else than a request from rank ", client);
  }
}

void Server::enqueue(Env& env, Rank client, const Stamp& stamp, std::int64_t exchange,
                     std::int64_t gradients, FrozenTensor update) {
  for (const Request& waiting : queue_)
    GRAPEVINE_CHECK(waiting.client != client, "rank ", client, " has two requests at once");
  left_.erase(client);
  queue_.push_back({exchange, arrivals_++, env.now(), client, stamp, gradients, std::move(update)});
  serve(env);
}

void Server::serve(Env& env) {
  if (parts_->plan.synchronous) {
    if (round_is_complete()) settle_round(env);
    return;
  }
  while (!queue_.empty() && (!parts_->plan.strict || open_.empty())) {
    const Request request = std::move(queue_.front());
    queue_.pop_front();
    meter(env, request);
    if (takes_offers())
      settle_offer(env, request);
    else
      grant(env, request);
  }
}

void Server::meter(Env& env, const Request& request) {
  meter_.served(number_of(request.client), request.arrival, env.now() - request.since);
}

// ---- sections: pull, rescale, commit ----

void Server::grant(Env& env, const Request& request) {
  const TimerId id = ++grants_;
  if (open_.empty()) busy_since_ = env.now();
  open_[request.client] = {request.exchange, id, env.now()};
  env.after(from_seconds(parts_->plan.section_timeout), id);
  env.send(request.client, stamp(), Grant{request.exchange, model_.x});
}

void Server::close_section(Env& env, Rank client) {
  open_.erase(client);
  if (open_.empty()) meter_.occupied(busy_since_, env.now());
}

void Server::take_commit(Env& env, Rank client, const Stamp& stamp, Commit commit) {
  const auto section = open_.find(client);
  if (section == open_.end() || section->second.exchange != commit.exchange) {
    ++refused_;
    return env.send(client, this->stamp(), Receipt{commit.exchange, false, {}});
  }
  close_section(env, client);
  Request request;
  request.client = client;
  request.exchange = commit.exchange;
  request.stamp = stamp;
  request.gradients = commit.gradients;
  apply(env, client, stamp, commit.update, 1);
  committed(env, request, {});
  serve(env);
}

// A client that stalls between pull and commit holds up nobody for longer than this.
void Server::on_timer(Env& env, TimerId id) {
  const auto late = std::find_if(open_.begin(), open_.end(),
                                 [id](const auto& entry) { return entry.second.grant == id; });
  if (late == open_.end()) return;  // it was in time
  ++taken_back_;
  close_section(env, late->first);
  serve(env);
}

// ---- offers ----

void Server::settle_offer(Env& env, const Request& request) {
  if (parts_->plan.rule == ServerRule::easgd) {
    FrozenTensor e = elastic(request);
    apply(env, request.client, request.stamp, e, 1);
    return committed(env, request, std::move(e));
  }
  const bool adaptive = parts_->plan.rule == ServerRule::adaptive;
  const auto tau = static_cast<double>(staleness(request.client, request.stamp));
  apply(env, request.client, request.stamp, request.update, adaptive ? 1 / (tau + 1) : 1);
  committed(env, request, model_.x);
}

bool Server::round_is_complete() const {
  return !queue_.empty() && queue_.size() + left_.size() >= clients_.size();
}

// In rank order, so that the sum does not depend on who came first.
void Server::settle_round(Env& env) {
  std::vector<Request> round(queue_.begin(), queue_.end());
  queue_.clear();
  for (const Request& request : round) meter(env, request);
  std::sort(round.begin(), round.end(),
            [](const Request& a, const Request& b) { return a.client < b.client; });
  std::vector<FrozenTensor> differences;
  for (const Request& request : round) differences.push_back(elastic(request));
  for (std::size_t i = 0; i < round.size(); ++i) {
    apply(env, round[i].client, round[i].stamp, differences[i], 1);
    committed(env, round[i], std::move(differences[i]));
  }
}

FrozenTensor Server::elastic(const Request& request) const {
  const double alpha = parts_->plan.elasticity / static_cast<double>(clients_.size());
  at::Tensor e = at::empty_like(model_.x.read());
  kernels::elastic_into(e, request.update.read(), model_.x.read(), alpha);
  return FrozenTensor::freeze(std::move(e));
}

// ---- the central variable ----

// theta <- theta + a u.
void Server::apply(Env& env, Rank client, const Stamp& stamp, const FrozenTensor& update,
                   double a) {
  const std::int64_t tau = staleness(client, stamp);
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& theta) {
    kernels::commit_into(out, theta, update.read(), a);
  });
  own_commit_[client] = ++version_;
  env.record({EventKind::applied, client, stamp, version_, tau, update.nbytes()});
}

void Server::committed(Env& env, const Request& request, FrozenTensor value) {
  advance_clock(request.gradients);
  if (env.membership().is_alive(request.client))
    env.send(request.client, stamp(), Receipt{request.exchange, true, std::move(value)});
}

void Server::advance_clock(std::int64_t gradients) {
  gradients_ += gradients;
  model_.epoch = std::max(
      model_.epoch, parts_->horizon.epoch_of(gradients_) / static_cast<double>(clients_.size()));
}

// Of an update computed from the version in `stamp`: versions since then but the client's own one.
std::int64_t Server::staleness(Rank client, const Stamp& stamp) const {
  const auto own = own_commit_.find(client);
  const bool counts = own != own_commit_.end() && own->second > stamp.version;
  return version_ - stamp.version - (counts ? 1 : 0);
}

// ---- who is there ----

void Server::on_peer_down(Env& env, Rank peer) {
  if (std::find(clients_.begin(), clients_.end(), peer) == clients_.end()) return;
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                              [peer](const Request& r) { return r.client == peer; }),
               queue_.end());
  if (open_.count(peer) > 0) close_section(env, peer);
  left_.insert(peer);
  meter_.client_left();
  serve(env);
  finish_if_all_left(env);
}

void Server::on_peer_up(Env&, Rank) {}

void Server::finish_if_all_left(Env& env) {
  if (left_.size() < clients_.size() || std::exchange(finished_, true)) return;
  model_.epoch = std::max(model_.epoch, parts_->horizon.epoch_of(parts_->horizon.steps));
  env.finished();
}

std::int32_t Server::number_of(Rank client) const {
  const auto it = std::lower_bound(clients_.begin(), clients_.end(), client);
  GRAPEVINE_CHECK(it != clients_.end() && *it == client, "rank ", client, " is no client");
  return static_cast<std::int32_t>(it - clients_.begin());
}

bool Server::takes_offers() const { return parts_->plan.rule != ServerRule::gem; }

Stamp Server::stamp() const {
  Stamp stamp;
  stamp.origin = rank_;
  stamp.step = version_;
  stamp.version = version_;
  return stamp;
}

StateDict Server::measures() const {
  StateDict state = meter_.measures();
  state.put("commits", version_);
  state.put("refused", refused_);
  state.put("taken_back", taken_back_);
  return state;
}

// ---- checkpoints ----

StateDict Server::save_request(const Request& request) {
  StateDict state;
  state.put("client", static_cast<std::int64_t>(request.client));
  state.put("exchange", request.exchange);
  state.put("arrival", request.arrival);
  state.put("step", request.stamp.step);
  state.put("version", request.stamp.version);
  state.put("gradients", request.gradients);
  if (request.update.defined()) state.put("update", request.update.read());
  return state;
}

Expected<Server::Request> Server::load_request(const StateDict& state) const {
  const auto client = state.integer("client"), exchange = state.integer("exchange"),
             arrival = state.integer("arrival"), step = state.integer("step"),
             version = state.integer("version"), gradients = state.integer("gradients");
  for (const auto* field : {&client, &exchange, &arrival, &step, &version, &gradients})
    if (!*field) return field->error();
  Request request;
  request.client = static_cast<Rank>(*client);
  request.exchange = *exchange;
  request.arrival = *arrival;
  request.stamp.origin = request.client;
  request.stamp.step = *step;
  request.stamp.version = *version;
  request.gradients = *gradients;
  if (takes_offers()) {
    auto update = state.tensor("update");
    if (!update) return update.error();
    if (update->numel() != model_.x.numel()) return bad_input("an update of another size waits");
    request.update = FrozenTensor::copy_of(*update);
  }
  return request;
}

StateDict Server::save() const {
  StateDict state;
  state.put("version", version_);
  state.put("gradients", gradients_);
  state.put("arrivals", arrivals_);
  state.put("grants", grants_);
  state.put("taken_back", taken_back_);
  state.put("refused", refused_);
  state.put("finished", static_cast<std::int64_t>(finished_));
  state.put("waiting", static_cast<std::int64_t>(queue_.size()));
  for (std::size_t i = 0; i < queue_.size(); ++i)
    state.put_all("queue." + std::to_string(i), save_request(queue_[i]));
  for (const auto& [client, section] : open_) {
    state.put("open." + std::to_string(client), section.exchange);
    state.put("grant." + std::to_string(client), section.grant);
  }
  for (const auto& [client, version] : own_commit_)
    state.put("own." + std::to_string(client), version);
  for (const Rank client : left_) state.put("left." + std::to_string(client), std::int64_t{1});
  return state;
}

Expected<void> Server::load(const StateDict& state) {
  const auto version = state.integer("version"), gradients = state.integer("gradients"),
             arrivals = state.integer("arrivals"), grants = state.integer("grants"),
             taken_back = state.integer("taken_back"), refused = state.integer("refused"),
             finished = state.integer("finished"), waiting = state.integer("waiting");
  for (const auto* field :
       {&version, &gradients, &arrivals, &grants, &taken_back, &refused, &finished, &waiting})
    if (!*field) return field->error();
  version_ = *version;
  gradients_ = *gradients;
  arrivals_ = *arrivals;
  grants_ = *grants;
  taken_back_ = *taken_back;
  refused_ = *refused;
  finished_ = *finished != 0;
  queue_.clear();
  for (std::int64_t i = 0; i < *waiting; ++i) {
    auto request = load_request(state.under("queue." + std::to_string(i)));
    if (!request) return request.error();
    queue_.push_back(std::move(*request));
  }
  const StateDict open = state.under("open"), own = state.under("own"), left = state.under("left");
  open_.clear();
  for (const auto& [client, exchange] : open.entries()) {
    const auto grant = state.integer("grant." + client);
    if (!grant) return grant.error();
    open_[static_cast<Rank>(std::stol(client))] = {std::get<std::int64_t>(exchange), *grant, {}};
  }
  own_commit_.clear();
  for (const auto& [client, commit] : own.entries())
    own_commit_[static_cast<Rank>(std::stol(client))] = std::get<std::int64_t>(commit);
  left_.clear();
  for (const auto& [client, ignored] : left.entries())
    left_.insert(static_cast<Rank>(std::stol(client)));
  return {};
}

}  // namespace grapevine
