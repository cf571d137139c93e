#include "algorithms/roles/server_client.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "algorithms/compressors/sparse_compressor.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

ServerClient::ServerClient(std::shared_ptr<const SharedParts> parts, Rank rank, Rank first_server,
                           ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      settings_(data_as<ServerSettings>(parts_->plan.settings)),
      rank_(rank),
      first_server_(first_server),
      servers_(parts_->plan.servers),
      model_(model),
      optimizer_(std::move(optimizer)),
      version_(static_cast<std::size_t>(servers_), 0),
      next_version_(version_),
      pulled_(static_cast<std::size_t>(servers_)),
      figures_(parts_->layout, servers_, parts_->horizon.steps) {
  const CompressionSettings& compression = parts_->plan.compression;
  for (std::int32_t server = 0; compression.enabled() && server < servers_; ++server) {
    const Slice part = slice_of(model_.x.numel(), servers_, server);
    packed_.emplace_back(settings_of_slice(compression, part.begin, part.size), part.size);
  }
}

// ---- training ----

// Clients and servers start from the same parameters: there is nothing to pull.
void ServerClient::on_start(Env& env) {
  const bool more = model_.step < parts_->horizon.steps;
  if (phase_ == Phase::exchanging || (phase_ == Phase::awaiting_receipts && !more)) return;
  if (!more && outstanding_.empty()) return leave(env);
  if (more) compute(env);
}

void ServerClient::compute(Env& env) {
  phase_ = Phase::computing;
  env.compute(model_.step, model_.x);
}

void ServerClient::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  model_.lr = parts_->lr.at(parts_->horizon.epoch_of(model_.step));
  at::Tensor g = std::move(gradient.value).thaw();
  const ClipSettings& clip = parts_->plan.local.clip;
  if (clip.norm > 0) kernels::clip(g, clip.norm);
  take_step(env, std::move(g));
  ++held_;
  if (held_ < parts_->plan.local.local_steps && model_.step + 1 < parts_->horizon.steps) {
    step_done(env);
    return compute(env);
  }
  exchange(env);
}

// The client's half of the rule, for one gradient.
void ServerClient::take_step(Env& env, at::Tensor gradient) {
  const OptimizerConfig& sgd = parts_->optimizer;
  if (is_easgd()) {
    at::Tensor x = std::move(model_.x).thaw();
    optimizer_->step(x, gradient, model_.lr);
    model_.x = FrozenTensor::freeze(std::move(x));
    return env.recycle(FrozenTensor::freeze(std::move(gradient)));
  }
  if (is_gem()) {
    if (!proxy_.defined()) proxy_ = at::zeros_like(gradient);
    kernels::advance_proxy(gradient, proxy_, model_.x.read(), model_.lr, sgd.momentum,
                           sgd.weight_decay);
    update_ = std::move(gradient);
    return;
  }
  if (sgd.weight_decay != 0) gradient.add_(model_.x.read(), sgd.weight_decay);
  kernels::scale(gradient, -model_.lr);
  if (parts_->plan.local.local_steps > 1) {
    at::Tensor x = std::move(model_.x).thaw();
    kernels::fold(x, gradient);
    model_.x = FrozenTensor::freeze(std::move(x));
  }
  if (!update_.defined()) {
    update_ = std::move(gradient);
    return;
  }
  kernels::fold(update_, gradient);
  env.recycle(FrozenTensor::freeze(std::move(gradient)));
}

void ServerClient::step_done(Env& env) {
  Stamp done;
  done.origin = rank_;
  done.step = model_.step;
  done.version = version_.front();
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
}

// gem asks for its turn; the other rules commit without theta.
void ServerClient::exchange(Env& env) {
  phase_ = Phase::exchanging;
  ++exchange_;
  outstanding_.send(exchange_, steps_given(), servers_);
  if (settings_.rule == ServerRule::agn && held_ > 1)
    kernels::scale(update_, 1.0 / static_cast<double>(held_));
  if (is_gem()) figures_.begin(model_.step, update_.numel());
  env.record({EventKind::wait_begin, first_server_, stamp(0), model_.step, 0, 0});
  for (std::int32_t server = 0; server < servers_; ++server) {
    const Rank to = first_server_ + server;
    if (is_gem())
      env.send(to, stamp(server), Ask{exchange_});
    else
      env.send(to, stamp(server), commit(env, server, held_, update_of(server)));
  }
  held_ = 0;
  if (!is_gem()) update_ = at::Tensor();
}

Payload ServerClient::commit(Env& env, std::int32_t server, std::int64_t gradients,
                             FrozenTensor update) {
  if (packed_.empty()) return Commit{exchange_, gradients, std::move(update)};
  at::Tensor vector = std::move(update).thaw();
  return packed_[static_cast<std::size_t>(server)].commit(exchange_, gradients, rank_, vector,
                                                          model_.epoch, env.rng());
}

// A single server receives the whole vector without a copy.
FrozenTensor ServerClient::update_of(std::int32_t server) {
  if (servers_ > 1)
    return FrozenTensor::copy_of(slice(is_easgd() ? model_.x.read() : update_, server));
  return is_easgd() ? model_.x : FrozenTensor::freeze(std::move(update_));
}

void ServerClient::on_message(Env& env, Envelope envelope) {
  const std::int32_t server = envelope.from - first_server_;
  GRAPEVINE_CHECK(server >= 0 && server < servers_, "rank ", envelope.from, " is no server");
  if (auto* grant = std::get_if<Grant>(&envelope.payload))
    on_grant(env, server, envelope.stamp, std::move(*grant));
  else if (auto* receipt = std::get_if<Receipt>(&envelope.payload))
    on_receipt(env, server, envelope.stamp, std::move(*receipt));
  else
    GRAPEVINE_CHECK(false, "rank ", envelope.from, " sent a client neither a grant nor a receipt");
}

// This client's turn: rescale against theta as it is now, and commit.
void ServerClient::on_grant(Env& env, std::int32_t server, const Stamp& stamp, Grant grant) {
  GRAPEVINE_CHECK(phase_ == Phase::exchanging && grant.exchange == exchange_, "rank ",
                  first_server_ + server, " granted exchange ", grant.exchange,
                  ", for which no request of this client is open");
  at::Tensor u = at::empty({grant.theta.numel()}, at::kFloat);
  GRAPEVINE_CHECK(slice(update_, server).numel() == u.numel(), "rank ", first_server_ + server,
                  " granted a slice of another size");
  kernels::match_energy_into(u, slice(update_, server), slice(proxy_, server), grant.theta.read(),
                             slice(model_.x.read(), server), settings_.kappa);
  if (figures_.measuring())
    figures_.add(slice_of(model_.x.numel(), servers_, server), grant.theta.read(),
                 slice(model_.x.read(), server), slice(proxy_, server), slice(update_, server), u);
  env.send(first_server_ + server, this->stamp(server),
           commit(env, server, 1, FrozenTensor::freeze(std::move(u))));
  pulled(env, server, stamp.version, std::move(grant.theta));
}

void ServerClient::on_receipt(Env& env, std::int32_t server, const Stamp& stamp, Receipt receipt) {
  if (!packed_.empty())
    packed_[static_cast<std::size_t>(server)].on_receipt(receipt.exchange, receipt.accepted);
  record_outcome(env, receipt.exchange, receipt.accepted);
  if (!is_gem()) return pulled(env, server, stamp.version, std::move(receipt.value));
  if (phase_ == Phase::awaiting_receipts && outstanding_.empty()) leave(env);
}

// Once all slices have arrived: s <- theta, or x <- x - e.
void ServerClient::pulled(Env& env, std::int32_t server, Version version, FrozenTensor value) {
  pulled_[static_cast<std::size_t>(server)] = std::move(value);
  next_version_[static_cast<std::size_t>(server)] = version;
  if (std::all_of(pulled_.begin(), pulled_.end(),
                  [](const FrozenTensor& slice) { return slice.defined(); }))
    complete(env);
}

void ServerClient::complete(Env& env) {
  env.record({EventKind::wait_end, first_server_, stamp(0), model_.step, 0, 0});
  if (is_easgd()) {
    at::Tensor x = std::move(model_.x).thaw();
    for (std::int32_t server = 0; server < servers_; ++server)
      slice(x, server).sub_(pulled_[static_cast<std::size_t>(server)].read());
    model_.x = FrozenTensor::freeze(std::move(x));
  } else {
    model_.x = concatenated_slices();
  }
  for (FrozenTensor& slice : pulled_) slice = FrozenTensor();
  version_ = next_version_;
  if (update_.defined()) env.recycle(FrozenTensor::freeze(std::move(update_)));
  update_ = at::Tensor();
  step_done(env);
  if (model_.step < parts_->horizon.steps) return compute(env);
  phase_ = Phase::awaiting_receipts;
  if (outstanding_.empty()) leave(env);
}

FrozenTensor ServerClient::concatenated_slices() const {
  if (servers_ == 1) return pulled_.front();
  std::vector<at::Tensor> slices;
  for (const FrozenTensor& slice : pulled_) slices.push_back(slice.read());
  return FrozenTensor::freeze(at::cat(slices));
}

// Gradients count as committed or dropped once the receipts of all servers have arrived.
void ServerClient::record_outcome(Env& env, std::int64_t exchange, bool accepted) {
  const auto outcome = outstanding_.on_receipt(exchange, accepted);
  if (!outcome) return;
  if (outcome->refused && !packed_.empty() && packed_.front().keeps_refused()) {
    resend_steps_.insert(resend_steps_.end(), outcome->steps.begin(), outcome->steps.end());
    return;
  }
  for (const Step step : outcome->steps) {
    Stamp of_gradient = stamp(0);
    of_gradient.step = step;
    env.record({outcome->refused ? EventKind::dropped : EventKind::committed, first_server_,
                of_gradient, model_.step, 0, 0});
  }
}

// The gradients of this exchange, and refused ones whose residual it sends again.
std::vector<Step> ServerClient::steps_given() {
  std::vector<Step> steps = std::exchange(resend_steps_, {});
  for (Step step = model_.step + 1 - held_; step <= model_.step; ++step) steps.push_back(step);
  return steps;
}

void ServerClient::leave(Env& env) {
  phase_ = Phase::finished;
  for (std::int32_t server = 0; server < servers_; ++server)
    if (env.membership().is_alive(first_server_ + server))
      env.send(first_server_ + server, stamp(server), Leave{exchange_});
  env.finished();
}

void ServerClient::on_timer(Env&, TimerId) {}

// Servers handle the loss of a client; at the loss of a server the supervisor ends the run.
void ServerClient::on_peer_down(Env&, Rank) {}
void ServerClient::on_peer_up(Env&, Rank) {}

at::Tensor ServerClient::slice(const at::Tensor& flat, std::int32_t server) const {
  const Slice part = slice_of(flat.numel(), servers_, server);
  return flat.narrow(0, part.begin, part.size);
}

// The stamp of a commit to one server: computed at version_.
Stamp ServerClient::stamp(std::int32_t server) const {
  return stamp_of(rank_, model_.step, version_[static_cast<std::size_t>(server)]);
}

StateDict ServerClient::measures() const { return is_gem() ? figures_.measures() : StateDict(); }

// ---- checkpoints ----

StateDict ServerClient::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("held", held_);
  state.put("exchange", exchange_);
  if (update_.defined()) state.put("update", update_.clone());
  if (proxy_.defined()) state.put("proxy", proxy_.clone());
  state.put_all("optimizer", optimizer_->save());
  for (std::int32_t server = 0; server < servers_; ++server) {
    const auto i = static_cast<std::size_t>(server);
    const std::string name = std::to_string(server);
    state.put("version." + name, version_[i]);
    state.put("next_version." + name, next_version_[i]);
    if (pulled_[i].defined()) state.put("pulled." + name, pulled_[i].read());
  }
  state.put_all("parcels", outstanding_.save());
  state.put_list("again", resend_steps_);
  for (std::size_t i = 0; i < packed_.size(); ++i)
    state.put_all("packed." + std::to_string(i), packed_[i].save());
  return state;
}

Expected<void> ServerClient::load(const StateDict& state) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             held = state.integer_in("held", 0, model_.step),
             exchange = state.integer_in("exchange", 0, kMost);
  for (const auto* field : {&phase, &held, &exchange})
    if (!*field) return field->error();
  phase_ = static_cast<Phase>(*phase);
  held_ = *held;
  exchange_ = *exchange;
  for (const auto& [name, to] : {std::pair{"update", &update_}, {"proxy", &proxy_}}) {
    *to = at::Tensor();
    if (state.entries().count(name) == 0) continue;
    const auto saved = state.flat_tensor(name, model_.x.numel());
    if (!saved) return saved.error();
    *to = saved->clone();
  }
  if (is_gem() && phase_ == Phase::exchanging && !(update_.defined() && proxy_.defined()))
    return bad_input(
        "the saved state waits for a grant and has no update or no proxy: the checkpoint is "
        "damaged, resume from another one");
  for (std::int32_t server = 0; server < servers_; ++server) {
    const auto i = static_cast<std::size_t>(server);
    const std::string name = std::to_string(server);
    const auto version = state.integer_in("version." + name, 0, kMost),
               next = state.integer_in("next_version." + name, 0, kMost);
    for (const auto* field : {&version, &next})
      if (!*field) return field->error();
    version_[i] = *version;
    next_version_[i] = *next;
    pulled_[i] = FrozenTensor();
    if (state.entries().count("pulled." + name) == 0) continue;
    const auto slice =
        state.flat_tensor("pulled." + name, slice_of(model_.x.numel(), servers_, server).size);
    if (!slice) return slice.error();
    pulled_[i] = FrozenTensor::copy_of(*slice);
  }
  if (auto loaded = outstanding_.load(state.under("parcels"), servers_); !loaded) return loaded;
  auto resend = state.list("again");
  if (!resend) return resend.error();
  resend_steps_ = std::move(*resend);
  for (std::size_t i = 0; i < packed_.size(); ++i)
    if (auto loaded = packed_[i].load(state.under("packed." + std::to_string(i))); !loaded)
      return loaded;
  return optimizer_->load(state.under("optimizer"), model_.x.numel());
}

}  // namespace grapevine
