// ServerClient: computes gradients at a copy of the central variable and commits to its servers.
//
// Papers, and what is committed: those of the rules (rule_*.cpp).
// Symbols: s the copy that gradients are computed at, H local steps, theta the slice of a server,
//   pulled when it is this client's turn.
//
//   offers:  H times the rule's step at s;  offer;  all have answered: the rule takes the answers
//   turns:   the rule's step at s;  ask each server;  granted theta: commit;  s <- theta
//
//   overlap: an offer travels while the next H steps are taken; before the next offer the rule
//            takes the answers as at this one, and the steps since then follow
//
// With S servers each slice is asked for, granted and committed by itself; the next gradient waits
// for all.
// Compressed (packed_commits.hpp): the commit of each slice through error feedback; gem's pi is
//   that of the step before compression, so that a commit, with the residual, may exceed
//   kappa |m|. Servers send whole slices.
// Bytes per exchange: 8 d, or 4 d and the compressor's, + headers.
// Memory: the rule's and the optimizer's; d floats for commits that servers or messages read, but
//   for an x that is offered whole, d for the answers, and with several servers d for the vector
//   that they become; compressed d for the residual, and the commits without an answer; with
//   overlap d for x at the exchange.
// Ledger: a gradient is committed when all servers have accepted it, dropped where one of
//   them refused it (its grant had been taken back); m keeps it. With error feedback it is not
//   dropped: it counts with the next commit, which may hold all of it.
// Lost and joining clients: a client keeps all that it has, and what it sent stands. One that joins
//   begins at another's copy, with its optimizer, and holds no gradients; gem's m begins at 0.
// Changed wirings: what the servers lack is added to the common model; of a step that waits for its
//   turn (its server's grant was that of a lost client), delta as it is.
// Waits: for its turn, or for the answers. Clients that take turns wait for receipts at their end
//   alone.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "algorithms/parts/outstanding_commits.hpp"
#include "algorithms/roles/server/packed_commits.hpp"
#include "algorithms/roles/server/pulled_slices.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {

class ServerClient final : public TrainingRole {
 public:
  // The first server is the rank after the last client.
  explicit ServerClient(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void fields(Archive& a) override;
  std::int64_t close(Env& env) override;
  void own_fields(Archive& a) override { fields(a); }
  void joiner_fields(Archive& a) override;
  void flush(Env& env) override;
  double mean_weight() const override { return offers_models() ? 1 : 0; }
  void take_over(const at::Tensor& optimizer) override;
  StateDict measures() const override { return rule_->measures(); }
  std::vector<Awaited> waits() const override;

 private:
  void step_done(Env& env);
  void exchange(Env& env);
  void on_grant(Env& env, std::int32_t server, const Stamp& stamp, Grant grant);
  void on_receipt(Env& env, std::int32_t server, const Stamp& stamp, Receipt receipt);
  void pulled(Env& env, std::int32_t server, Version version, FrozenTensor value);
  void offer(Env& env);
  void use_answer(Env& env);
  void record_outcome(Env& env, std::int64_t exchange, bool accepted);
  void account_for(Env& env, std::int64_t exchange, const OutstandingCommits::Outcome& outcome);
  void leave(Env& env);

  void commit(Env& env, std::int32_t server, const Stamp& stamp, std::int64_t gradients,
              FrozenTensor update);
  // The answers that are missing.
  std::vector<Awaited> awaited() const override;
  bool takes_turns() const { return settings_.rule->takes_turns; }
  bool offers_models() const { return settings_.rule->pack == Pack::model; }
  at::Tensor uncommitted();
  void add_step_without_turn(at::Tensor& sum) const;
  void record(Env& env, EventKind kind, const std::vector<Step>& steps, std::int64_t exchange);
  Rank rank_of(std::int32_t server) const { return ranks_ + server; }
  Slice slice(std::int32_t server) const { return slice_of(model_.x.numel(), servers_, server); }
  Stamp stamp_at(Version version) const { return stamp_of(rank_, model_.step, version); }
  // Of a commit to one server: the version that its gradients were computed at.
  Stamp stamp_for(std::int32_t server) const {
    return stamp_at(pulled_.versions()[static_cast<std::size_t>(server)]);
  }
  Stamp stamp() const override { return stamp_for(0); }
  std::vector<Step> steps_given();

  // Constant after construction.
  const ServerSettings& settings_;
  const std::int32_t servers_;

  const std::unique_ptr<ClientRule> rule_;
  std::int64_t held_ = 0;      // gradients that were not offered yet
  std::int64_t exchange_ = 0;  // the newest
  PulledSlices pulled_;        // of this exchange
  bool answer_due_ = false;    // of the newest exchange: not used yet
  FrozenTensor sent_;          // overlap: x at that exchange
  OutstandingCommits outstanding_;
  std::deque<PackedCommits> packed_;  // by server; none: commits are whole
  std::vector<Step> resend_steps_;    // steps that were refused and are in a residual
};

}  // namespace grapevine
