// ServerClient: computes gradients at a copy of the central variable and commits to its servers.
//
// Papers: those of server.hpp.
// Symbols: s the copy that gradients are computed at, g gradient, eta lr, m proxy, lambda window,
//   theta the slice of a server, pulled when it is this client's turn.
//
//   gem:       delta = -eta g;  m <- mu m + delta;  ask; granted theta: commit
//              clamp((kappa |m| - |theta - s|) / (|delta| + 1e-12), 0, 5) * delta;  s <- theta
//   downpour:  lambda times s <- s - eta g;  offer the sum of -eta g;  s <- theta, with it inside
//   agn:       as downpour, offers the sum / lambda
//   adaptive:  as downpour; the server divides by tau + 1
//   easgd:     lambda steps of the optimizer on x = s;  offer x;  x <- x - e
//
// With S servers each slice is asked for, granted and committed by itself; the next gradient waits
// for all. gem computes on from theta as it was before its own commit, as published: on one worker
// with a constant gradient it steps by 1, .9, 1.81, 1.63, … times eta, not as momentum SGD.
// Compressed (packed_commits.hpp): the commit of each slice through error feedback; gem's pi is
//   that of the step before compression, so that a commit, with the residual, may exceed
//   kappa |m|. Servers send whole slices.
// Bytes per exchange: 8 d, or 4 d and the compressor's, + headers. Memory: gem 2 d beside s, easgd
//   that of the optimizer, compressed d more.
// Ledger: a gradient is committed when all servers have accepted it, dropped where one of
//   them refused it (its grant had been taken back); m keeps it. With error feedback it is not
//   dropped: it counts with the next commit, which may hold all of it.
// Waits: for its turn; gem does not wait for receipts, but for the last ones at its end.
// Deviations: momentum is the proxy's in gem and the optimizer's in easgd; the other rules commit
//   -eta (g + weight decay), without momentum, as published.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "algorithms/parts/outstanding_commits.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/gem_figures.hpp"
#include "algorithms/roles/packed_commits.hpp"
#include "algorithms/roles/server_settings.hpp"

namespace grapevine {

class ServerClient final : public Role {
 public:
  // `rank`: among the clients; `first_server`: the rank after the last client. `model` outlives
  // this.
  ServerClient(std::shared_ptr<const SharedParts> parts, Rank rank, Rank first_server,
               ModelState& model, std::unique_ptr<Optimizer> optimizer);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  void on_peer_up(Env& env, Rank peer) override;
  FrozenTensor debiased() const override { return model_.x; }
  StateDict save() const override;
  Expected<void> load(const StateDict& state) override;
  StateDict measures() const override;

 private:
  enum class Phase : std::int64_t { computing, exchanging, awaiting_receipts, finished };

  void compute(Env& env);
  void take_step(Env& env, at::Tensor gradient);
  void step_done(Env& env);
  void exchange(Env& env);
  void on_grant(Env& env, std::int32_t server, const Stamp& stamp, Grant grant);
  void on_receipt(Env& env, std::int32_t server, const Stamp& stamp, Receipt receipt);
  void pulled(Env& env, std::int32_t server, Version version, FrozenTensor value);
  void complete(Env& env);
  FrozenTensor concatenated_slices() const;
  void record_outcome(Env& env, std::int64_t exchange, bool accepted);
  void leave(Env& env);

  // The message to one server; `update` is its slice, or the whole vector for a single server.
  Payload commit(Env& env, std::int32_t server, std::int64_t gradients, FrozenTensor update);
  FrozenTensor update_of(std::int32_t server);
  at::Tensor slice(const at::Tensor& flat, std::int32_t server) const;
  bool is_gem() const { return settings_.rule == ServerRule::gem; }
  bool is_easgd() const { return settings_.rule == ServerRule::easgd; }
  Stamp stamp(std::int32_t server) const;
  std::vector<Step> steps_given();

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const ServerSettings& settings_;
  const Rank rank_;
  const Rank first_server_;
  const std::int32_t servers_;
  ModelState& model_;

  std::unique_ptr<Optimizer> optimizer_;  // easgd
  Phase phase_ = Phase::computing;
  at::Tensor update_;             // [d] delta, or the window's sum; undefined where there is none
  at::Tensor proxy_;              // [d] gem: m
  std::int64_t held_ = 0;         // gradients in update_ (easgd: in x) that were not offered yet
  std::int64_t exchange_ = 0;     // the newest
  std::vector<Version> version_;  // by server: of s
  std::vector<Version> next_version_;
  std::vector<FrozenTensor> pulled_;  // by server: received in this exchange
  OutstandingCommits outstanding_;
  std::deque<PackedCommits> packed_;  // by server; none: commits are whole
  std::vector<Step> resend_steps_;    // steps that were refused and are in a residual
  GemFigures figures_;
};

}  // namespace grapevine
