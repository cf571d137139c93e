// ServerRule: the commits of clients to parameter servers, and their use there. One constant
// in each rule's file and one list; a rule has a half on each side.
//
// Symbols: theta central variable, s the copy of it that a client computes at, g gradient, eta lr,
//   tau staleness, H local steps, n clients.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/parts/server_rules.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

// Those that the servers serve.
inline std::int32_t clients_of(const RoleContext& client) {
  return client.clients > 0 ? client.clients : client.ranks;
}

// The client's half. Not thread-safe.
class ClientRule {
 public:
  virtual ~ClientRule() = default;
  // One gradient at model.x, [d]. Sets model.lr.
  virtual void step(Env& env, ModelState& model, at::Tensor gradient, double epoch) = 0;
  // What the steps since the last exchange amount to, [d], for `held` of them.
  virtual FrozenTensor offer(const ModelState& model, std::int64_t held) = 0;
  // Rules that take turns: u <- the commit to one server, whose slice of theta was granted; [k].
  virtual void commit_into(at::Tensor& u, const Slice&, const FrozenTensor& theta,
                           const ModelState& model);
  // Rules that take turns: the part of the newest step in one server's slice, which is added to
  // theta where no turn comes any more; [k].
  virtual at::Tensor step_in(const Slice&) const;
  // By which a server multiplies an offer that is added to theta at `model`'s clock; where it
  // depends on its staleness, among clients of one speed.
  virtual double commit_factor(const ModelState&) const { return 1; }
  // x after an exchange; `answer`: [d], theta, or the rule's own value.
  virtual void take(Env& env, ModelState& model, FrozenTensor answer) = 0;
  // `waits`: for an answer.
  virtual void fields(Archive& a, std::int64_t d, bool waits) = 0;
  virtual StateDict measures() const { return {}; }
};

// The server's half, for its slice. Not thread-safe.
class SliceRule {
 public:
  virtual ~SliceRule() = default;
  // theta <- theta + factor * update.
  struct Change {
    FrozenTensor update;
    double factor = 1;
  };
  virtual Change change(const FrozenTensor& theta, const FrozenTensor& offered,
                        std::int64_t staleness);
  // The client gets the change; else theta with it.
  virtual bool answers_change() const { return false; }
  virtual void fields(Archive&, std::int64_t) {}
};

struct ServerRule {
  std::string name;  // the value of wiring.rule
  Pack pack = Pack::gradient;
  // A client pulls theta in its turn and commits then; others offer, and wait.
  bool takes_turns = false;
  // The client steps by the run's optimizer; else along the gradient.
  bool has_optimizer = false;
  // The optimizer's momentum counts.
  bool uses_momentum = false;
  // The rule's own keys, where it has any.
  std::function<void(KeyReader& keys, Plan& plan, struct ServerSettings& settings)> read;
  std::function<std::unique_ptr<ClientRule>(const RoleContext& client, LocalUpdate& local)> client;
  std::function<std::unique_ptr<SliceRule>(const ServerContext& server)> slice;
};

// All rules.
const std::vector<const ServerRule*>& server_rules();

const ServerRule& gem_rule();
const ServerRule& downpour_rule();
const ServerRule& adaptive_rule();
const ServerRule& agn_rule();
const ServerRule& easgd_rule();
const ServerRule& delayed_nesterov_rule();

}  // namespace grapevine
