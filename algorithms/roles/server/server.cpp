#include "algorithms/roles/server/server.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

Server::Server(ServerContext context)
    : parts_(context.parts),
      settings_(server_settings(*parts_)),
      rank_(context.rank),
      compressor_(make_compressor(parts_->plan.compression)),
      model_(context.model),
      rule_(settings_.rule->slice(context)),
      clients_(context.clients),
      meter_(clients_.count()) {
  const Slice slice = slice_of(model_.x.numel(), parts_->plan.servers, context.index);
  model_.x = FrozenTensor::copy_of(model_.x.read().narrow(0, slice.begin, slice.size));
}

// After a checkpoint the timeouts of grants start anew. Finished clients send Leave again; where
// all had finished, the run may have been extended.
void Server::on_start(Env& env) {
  for (const TimerId grant : open_.grants())
    env.after(from_seconds(settings_.section_timeout), grant);
  busy_since_ = env.now();
  queue_.restart(env.now());
  if (std::exchange(finished_, false)) clients_.return_all();
}

void Server::on_gradient(Env&, Gradient) {
  GRAPEVINE_CHECK(false, "a server has no worker, and got a gradient");
}

// ---- the queue ----

void Server::on_message(Env& env, Envelope envelope) {
  const Rank client = envelope.from;
  if (!env.membership().is_alive(client)) return;  // an answer has no receiver
  if (const auto* ask = std::get_if<Ask>(&envelope.payload)) {
    enqueue(env, client, envelope.stamp, ask->exchange, 0, {});
  } else if (auto* commit = std::get_if<Commit>(&envelope.payload)) {
    GRAPEVINE_CHECK(!parts_->plan.compression.enabled(), "rank ", client,
                    " sent a commit that is not compressed");
    receive(env, client, envelope.stamp, std::move(*commit));
  } else if (const auto* chunk = std::get_if<PackedChunk>(&envelope.payload)) {
    GRAPEVINE_CHECK(parts_->plan.compression.enabled(), "rank ", client,
                    " sent a commit that is compressed");
    receive_packed(env, client, envelope.stamp, *chunk);
  } else if (std::holds_alternative<Leave>(envelope.payload)) {
    client_left(env, client);
  } else {
    GRAPEVINE_CHECK(false, "rank ", client, " sent a server neither a request nor a commit");
  }
}

void Server::receive(Env& env, Rank client, const Stamp& stamp, Commit commit) {
  GRAPEVINE_CHECK(commit.update.numel() == model_.x.numel(), "rank ", client,
                  " sent an update of another size");
  GRAPEVINE_CHECK(commit.gradients >= 1 && commit.gradients <= parts_->exchanges.longest(), "rank ",
                  client, " sent an update of ", commit.gradients,
                  " gradients, more than local_steps allow");
  if (takes_offers())
    enqueue(env, client, stamp, commit.exchange, commit.gradients, std::move(commit.update));
  else
    take_commit(env, client, stamp, std::move(commit));
}

void Server::receive_packed(Env& env, Rank client, const Stamp& stamp, const PackedChunk& chunk) {
  if (auto commit = unpacked(chunk)) return receive(env, client, stamp, std::move(*commit));
  if (open_.is_open(client, chunk.operation)) close_section(env, client);
  refuse(env, client, chunk.operation);
  serve(env);
}

std::optional<Commit> Server::unpacked(const PackedChunk& chunk) const {
  if (chunk.round < 1 || chunk.round > parts_->exchanges.longest()) return std::nullopt;
  at::Tensor update = at::zeros({model_.x.numel()}, at::kFloat);
  if (!compressor_->fold(update, chunk.data, 1)) return std::nullopt;
  return Commit{chunk.operation, chunk.round, FrozenTensor::freeze(std::move(update))};
}

// A client that offers continues from theta, also after a refusal.
void Server::refuse(Env& env, Rank client, std::int64_t exchange) {
  ++refused_;
  env.send(client, stamp(), Receipt{exchange, false, takes_offers() ? model_.x : FrozenTensor()});
}

void Server::enqueue(Env& env, Rank client, const Stamp& stamp, std::int64_t exchange,
                     std::int64_t gradients, FrozenTensor update) {
  clients_.returns(client);
  queue_.push({exchange, 0, env.now(), client, stamp, gradients, std::move(update)});
  serve(env);
}

void Server::serve(Env& env) {
  if (settings_.synchronous) {
    if (round_is_complete()) close_round(env);
    return;
  }
  while (!queue_.empty() && (!settings_.strict || open_.empty())) {
    const Request request = queue_.pop();
    meter(env, request);
    if (takes_offers())
      serve_offer(env, request);
    else
      grant(env, request);
  }
}

void Server::meter(Env& env, const Request& request) {
  meter_.served(clients_.number_of(request.client), request.arrival, env.now() - request.since);
}

// ---- sections: pull, rescale, commit ----

void Server::grant(Env& env, const Request& request) {
  if (open_.empty()) busy_since_ = env.now();
  const TimerId id = open_.open(request.client, request.exchange);
  env.after(from_seconds(settings_.section_timeout), id);
  env.send(request.client, stamp(), Grant{request.exchange, model_.x});
}

void Server::close_section(Env& env, Rank client) {
  open_.close(client);
  if (open_.empty()) meter_.occupied(busy_since_, env.now());
}

void Server::take_commit(Env& env, Rank client, const Stamp& stamp, Commit commit) {
  if (!open_.is_open(client, commit.exchange)) return refuse(env, client, commit.exchange);
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

// A client that stalls between pull and commit delays the others until this timeout at most.
void Server::on_timer(Env& env, TimerId id) {
  const auto late = open_.holder(id);
  if (!late) return;  // the commit was in time
  ++taken_back_;
  close_section(env, *late);
  serve(env);
}

// ---- offers ----

void Server::serve_offer(Env& env, const Request& request) {
  const SliceRule::Change change =
      rule_->change(model_.x, request.update, staleness(request.client, request.stamp));
  apply(env, request.client, request.stamp, change.update, change.factor);
  committed(env, request, rule_->answers_change() ? change.update : model_.x);
}

bool Server::round_is_complete() const {
  return !queue_.empty() && static_cast<std::int32_t>(queue_.size()) >= clients_.present();
}

// In rank order, so that the sum does not depend on the order of arrival.
void Server::close_round(Env& env) {
  std::vector<Request> round = queue_.take_all();
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
  advance_clock(request.gradients);
  if (env.membership().is_alive(request.client))
    env.send(request.client, stamp(), Receipt{request.exchange, true, std::move(value)});
}

void Server::advance_clock(std::int64_t gradients) {
  gradients_ += gradients;
  model_.epoch = std::max(
      model_.epoch, parts_->horizon.epoch_of(gradients_) / static_cast<double>(clients_.count()));
}

// ---- membership ----

void Server::on_peer_down(Env& env, Rank peer) {
  if (!clients_.has(peer)) return;
  queue_.remove(peer);
  if (open_.is_open(peer)) close_section(env, peer);
  client_left(env, peer);
}

// It has finished or died. The last one ends the run.
void Server::client_left(Env& env, Rank client) {
  clients_.leaves(client);
  meter_.client_left();
  serve(env);
  if (clients_.present() > 0 || std::exchange(finished_, true)) return;
  model_.epoch = std::max(model_.epoch, parts_->horizon.epoch_of(parts_->horizon.steps));
  env.finished();
}

Stamp Server::stamp() const { return stamp_of(rank_, version_, version_); }

StateDict Server::measures() const {
  StateDict state = meter_.measures();
  state.put("commits", version_);
  state.put("refused", refused_);
  state.put("taken_back", taken_back_);
  return state;
}

// ---- checkpoints ----

void Server::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  a.whole("version", version_, 0, kMost);
  a.whole("gradients", gradients_, 0, kMost);
  a.whole("taken_back", taken_back_, 0, kMost);
  a.whole("refused", refused_, 0, kMost);
  a.flag("finished", finished_);
  a.nested("rule", [this](Archive& inner) { rule_->fields(inner, model_.x.numel()); });
  a.part("queue", queue_,
         takes_offers() ? std::optional<std::int64_t>(model_.x.numel()) : std::nullopt,
         clients_.ranks());
  a.part("sections", open_, clients_.ranks());
  a.part("clients", clients_);
}

}  // namespace grapevine
