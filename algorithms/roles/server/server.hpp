// Server: holds a slice of the central variable and serves clients in the order of their requests.
//
// Papers: GEM: Hermans & Louppe: "Gradient Energy Matching for Distributed Asynchronous Gradient
//   Descent", 2018. DOWNPOUR: Dean et al., NeurIPS 2012. Staleness-aware: Zhang et al., IJCAI 2016.
//   AGN: Hermans et al. 2017. (A)EASGD: Zhang, Choromanska, LeCun, NeurIPS 2015.
// Symbols: theta central variable (this slice), v its version, u a client's commit, tau staleness.
//
//   client asks (gem):  enqueue;  its turn: grant theta;  its commit u: theta <- theta + u; ++v
//
//   client offers:      enqueue;  its turn: theta <- theta + the rule's change (rule_*.cpp); ++v;
//                       answer theta, or the change
//     synchronous       waits for all clients that take part; every change against the same theta
//
// Fairness: service order = arrival order. A client has one request at a time, so a waiting one is
//   passed by each other at most once: n - 1 times. Strict sections (the default): the next
//   grant waits until the commit has arrived or the grant was taken back, after section_timeout or
//   by the client's death. A commit after that is refused; the receipt says so.
// Compressed commits (packed_commits.hpp) are unpacked once, on arrival; the rules see no
//   difference. A malformed one is refused, like a late one. easgd's clients offer models without
//   compression: entries that are not sent would count as 0.
// Bytes per exchange: gem: grant and commit 4 d/S each, ask and receipt headers; offers: 4 d/S each
//   way. Messages: gem 4, offers 2.
// Staleness: versions since the client's pull that are not its own; n - 1 for a saturated queue.
// Conservation: theta = theta_0 + sum of accepted commits (divided by tau + 1 for adaptive).
// Clock: gradients committed by all clients, over their number; once all have left, the run's end.
// Lost clients: their requests and grants are taken back, what they committed stays. One that
//   returns has the copy of another client, and the versions that this was pulled at.
// Deviations: sockets polled in rank order served low ranks first; here the mailbox is the order.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/parts/service_meter.hpp"
#include "algorithms/parts/service_queue.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/roles/server/served_clients.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {

class Server final : public Role {
 public:
  // context.clients: those that train; all ranks below the first server ever did. context.model
  // outlives this.
  explicit Server(ServerContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  FrozenTensor debiased() const override { return model_.x; }
  void fields(Archive& a) override;
  std::int64_t close(Env& env) override;
  void own_fields(Archive& a) override;
  double mean_weight() const override { return 1.0 / parts_->plan.servers; }
  at::Tensor optimizer_state() const override;
  void take_over(const at::Tensor& optimizer) override;
  StateDict measures() const override;
  std::vector<Awaited> waits() const override;

 private:
  using Request = ServiceRequest;

  void serve(Env& env);
  void grant(Env& env, const Request& request);
  void close_section(Env& env, Rank client);
  void take_commit(Env& env, const Request& request);
  void take_offers(Env& env, std::vector<Request> round);
  void apply(Env& env, Rank client, const Stamp& stamp, const FrozenTensor& update, double a);
  void committed(Env& env, const Request& request, FrozenTensor value);
  void meter(Env& env, const Request& request);
  void client_left(Env& env, Rank client);
  // `clients`: those that the saved state may name, ascending.
  void fields_of(Archive& a, const std::vector<Rank>& clients);
  std::int64_t staleness(Rank client, const Stamp& stamp) const {
    return clients_.staleness(client, version_, stamp.version);
  }
  bool takes_offers() const { return !settings_.rule->takes_turns; }
  Stamp stamp() const { return stamp_of(rank_, version_, version_); }

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const ServerSettings& settings_;
  const Rank rank_, first_server_;
  const std::unique_ptr<const Compressor> compressor_;  // of commits
  ModelState& model_;

  const std::unique_ptr<SliceRule> rule_;
  Version version_ = 0;
  ServiceQueue queue_;
  CriticalSections open_;  // at most one where they are strict
  ServedClients clients_;
  std::int64_t gradients_ = 0;   // committed since the present clients took over,
  double took_over_ = 0;         // and the clock at that moment, in epochs
  std::int64_t taken_back_ = 0;  // grants
  std::int64_t refused_ = 0;     // commits
  bool finished_ = false;
  Timestamp busy_since_{0};  // a section has been open
  ServiceMeter meter_;
  BufferPool pool_;
};

}  // namespace grapevine
