#include "algorithms/roles/server/server.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "algorithms/roles/make_role.hpp"
#include "algorithms/roles/server/read_request.hpp"
#include "messages/check.hpp"

namespace grapevine {

Server::Server(ServerContext context)
    : parts_(context.parts),
      settings_(server_settings(*parts_)),
      rank_(context.rank),
      first_server_(context.rank - context.index),
      compressor_(make_compressor(parts_->plan.compression)),
      model_(context.model),
      rule_(settings_.rule->slice(context)),
      clients_(context.clients),
      meter_(clients_.count()) {
  // In one process each client computes at a version of theta of its own, and the server's is new.
  pool_.add_capacity(context.clients.size());
}

// After a checkpoint the timeouts of grants start anew. Finished clients send Leave again; where
// all had finished, the run may have been extended.
void Server::on_start(Env& env) {
  for (const TimerId grant : open_.grants())
    env.after(from_seconds(settings_.section_timeout), grant);
  busy_since_ = env.now();
  queue_.restart(env.now());
  if (std::exchange(finished_, false)) clients_.return_all();
  serve(env);  // a client for which others waited may be lost
}

void Server::on_gradient(Env&, Gradient) {
  GRAPEVINE_CHECK(false, "a server has no worker, and got a gradient");
}

// ---- the queue ----

void Server::on_message(Env& env, Envelope envelope) {
  const Rank client = envelope.from;
  if (!env.membership().is_alive(client)) return;  // an answer has no receiver
  if (std::holds_alternative<Leave>(envelope.payload)) return client_left(env, client);
  const bool asks = std::holds_alternative<Ask>(envelope.payload);
  Request request =
      read_request(envelope, *parts_, *compressor_, model_.x.numel(), model_.x.device());
  if (!asks && !(takes_offers() && request.update.defined())) return take_commit(env, request);
  clients_.returns(client);
  request.since = env.now();
  queue_.push(std::move(request));
  serve(env);
}

void Server::serve(Env& env) {
  if (settings_.synchronous) {
    const auto waiting = static_cast<std::int32_t>(queue_.size());
    if (waiting > 0 && waiting >= clients_.present()) take_offers(env, queue_.take_all());
    return;
  }
  while (!queue_.empty() && (!settings_.strict || open_.empty()))
    takes_offers() ? take_offers(env, {queue_.pop()}) : grant(env, queue_.pop());
}

void Server::meter(Env& env, const Request& request) {
  meter_.served(clients_.number_of(request.client), request.arrival, env.now() - request.since);
}

// ---- sections: pull, rescale, commit ----

void Server::grant(Env& env, const Request& request) {
  meter(env, request);
  if (open_.empty()) busy_since_ = env.now();
  const TimerId id = open_.open(request.client, request.exchange);
  env.after(from_seconds(settings_.section_timeout), id);
  env.send(request.client, stamp(), Grant{request.exchange, model_.x});
}

void Server::close_section(Env& env, Rank client) {
  open_.close(client);
  if (open_.empty()) meter_.occupied(busy_since_, env.now());
}

// Refused: one that is late, and one that cannot be unpacked. An offer may be that, too: its client
// continues from theta.
void Server::take_commit(Env& env, const Request& request) {
  const bool in_time = open_.is_open(request.client, request.exchange);
  if (in_time) close_section(env, request.client);
  if (in_time && request.update.defined()) {
    apply(env, request.client, request.stamp, request.update, 1);
    committed(env, request, {});
  } else {
    ++refused_;
    env.send(request.client, stamp(),
             Receipt{request.exchange, false, takes_offers() ? model_.x : FrozenTensor()});
  }
  serve(env);
}

// A client that stalls between pull and commit delays the others until this timeout at most.
void Server::on_timer(Env& env, TimerId id) {
  const auto late = open_.holder(id);
  if (!late) return;  // the commit was in time
  ++taken_back_;
  close_section(env, *late);
  serve(env);
}

// The commits without which the clients in the queue are not served.
std::vector<Awaited> Server::waits() const {
  std::vector<Awaited> missing;
  if (queue_.empty()) return missing;
  if (settings_.synchronous) return {{-1, PayloadKind::commit}};
  for (const auto& [client, exchange] : open_.holders())
    missing.push_back({client, PayloadKind::commit, exchange});
  return missing;
}

// ---- offers ----

// Of a synchronous round, or one. In rank order, so that the sum does not depend on the order of
// arrival.
void Server::take_offers(Env& env, std::vector<Request> round) {
  for (const Request& request : round) meter(env, request);
  std::sort(round.begin(), round.end(),
            [](const Request& a, const Request& b) { return a.client < b.client; });
  std::vector<SliceRule::Change> changes;
  for (const Request& request : round)
    changes.push_back(
        rule_->change(model_.x, request.update, staleness(request.client, request.stamp)));
  for (std::size_t i = 0; i < round.size(); ++i) {
    apply(env, round[i].client, round[i].stamp, changes[i].update, changes[i].factor);
    if (rule_->answers_change()) committed(env, round[i], changes[i].update);
  }
  if (rule_->answers_change()) return;
  for (const Request& request : round) committed(env, request, model_.x);
}

// ---- the central variable ----

// theta <- theta + a u.
void Server::apply(Env& env, Rank client, const Stamp& stamp, const FrozenTensor& update,
                   double a) {
  const std::int64_t tau = staleness(client, stamp);
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& theta) {
    kernels::commit_into(out, theta, update.read(), a);
  });
  clients_.committed(client, ++version_);
  env.record({EventKind::applied, client, stamp, version_, tau, update.nbytes()});
}

void Server::committed(Env& env, const Request& request, FrozenTensor value) {
  gradients_ += request.gradients;
  const double each = static_cast<double>(gradients_) / clients_.count();
  model_.epoch = std::max(model_.epoch, took_over_ + each / parts_->horizon.steps_per_epoch);
  if (env.membership().is_alive(request.client))
    env.send(request.client, stamp(), Receipt{request.exchange, true, std::move(value)});
}

// ---- membership ----

void Server::on_peer_down(Env& env, Rank peer) {
  if (!clients_.has(peer)) return;
  queue_.remove(peer);
  clients_.forget(peer);
  if (open_.is_open(peer)) close_section(env, peer);
  client_left(env, peer);
}

// Each answer that was due has been sent. An offer in a synchronous round still waits.
std::int64_t Server::close(Env&) { return 0; }

// It has finished or died. The last one ends the run.
void Server::client_left(Env& env, Rank client) {
  clients_.leaves(client);
  meter_.client_left();
  serve(env);
  if (clients_.present() > 0 || std::exchange(finished_, true)) return;
  model_.epoch = std::max(model_.epoch, parts_->horizon.epoch_of(parts_->horizon.steps));
  env.finished();
}

StateDict Server::measures() const {
  StateDict state = meter_.measures();
  state.put("commits", version_);
  state.put("refused", refused_);
  state.put("taken_back", taken_back_);
  return state;
}

// ---- checkpoints, and changes of members ----

// A run that continues with another batch size has epochs of another length from then on.
void Server::fields(Archive& a) {
  fields_of(a, clients_.ranks());
  const Horizon& horizon = parts_->horizon;
  if (!a.loads() || horizon.members_have_changed() || horizon.first_epoch <= took_over_) return;
  gradients_ = 0;
  took_over_ = horizon.first_epoch;
}

// The role before may have served ranks that are lost. All clients count as present: one that has
// finished leaves again. The clock continues from where they took over.
void Server::own_fields(Archive& a) {
  std::vector<Rank> all(static_cast<std::size_t>(first_server_));
  std::iota(all.begin(), all.end(), 0);
  fields_of(a, all);
  if (!a.loads() || !a.ok()) return;
  for (const Rank rank : all)
    if (!clients_.has(rank)) {
      queue_.remove(rank);
      open_.close(rank);
      clients_.forget(rank);
    }
  clients_.return_all();
  finished_ = false;
  gradients_ = 0;
  took_over_ = model_.epoch;
}

// A server has no optimizer of the run: zeros, as many as a client gives.
at::Tensor Server::optimizer_state() const {
  return at::zeros_like(make_run_optimizer(*parts_)->state_vector(model_.x.numel()));
}

// Of another wiring: the clock continues from there.
void Server::take_over(const at::Tensor&) { took_over_ = model_.epoch; }

void Server::fields_of(Archive& a, const std::vector<Rank>& clients) {
  a.count("version", version_);
  a.count("gradients", gradients_);
  if (a.has("took_over", took_over_ > 0)) a.number("took_over", took_over_);
  a.count("taken_back", taken_back_);
  a.count("refused", refused_);
  a.flag("finished", finished_);
  a.nested("rule", [this](Archive& inner) { rule_->fields(inner, model_.x.numel()); });
  const auto offered = takes_offers() ? std::optional(model_.x.numel()) : std::nullopt;
  a.part("queue", queue_, offered, clients);
  a.part("sections", open_, clients);
  a.part("clients", clients_, clients);
}

}  // namespace grapevine
