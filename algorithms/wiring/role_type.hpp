// RoleType: a role describes itself. One constant in each role's file and one list; nothing else in
// the engine knows which roles there are.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/keys.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// What the role of one rank is made from. Ranks are positions among those that train, or among the
// nodes where there is a hierarchy; servers follow them.
struct RoleContext {
  std::shared_ptr<const SharedParts> parts;
  Rank rank = 0;
  std::int32_t ranks = 0;  // that train
  ModelState& model;       // outlives the role
  std::unique_ptr<Optimizer> optimizer;
  std::int32_t clients = 0;  // of these, that the servers serve: without lost ranks; 0: all
};

struct ServerContext {
  std::shared_ptr<const SharedParts> parts;
  Rank rank = 0;
  std::vector<Rank> clients;  // ascending
  std::int32_t index = 0;     // among the servers
  ModelState& model;          // outlives the role; x is the server's slice
};

// How the gradients of all ranks enter the models.
enum class GradientSums {
  unknown,
  means,  // each operation takes the mean gradient of its members
  sums    // the sum of all models falls by that of all gradients
};

// The push-sum weight that the messages of a role carry.
enum class SentWeight {
  none,
  shares,  // each counts once
  sums     // of all shares that were ever given on an edge: messages may be lost
};

struct RoleType {
  std::string name;     // the value of wiring.exchange
  std::string summary;  // one line

  // Declares the role's keys, with those of the parts that it uses, and reads them into `plan`.
  std::function<void(KeyReader& keys, Plan& plan)> read;
  // Checks what depends on the number of ranks that exchange, and prepares what they share; may be
  // empty.
  std::function<Expected<void>(SharedParts& parts, std::int32_t ranks)> prepare = nullptr;
  std::function<std::unique_ptr<Role>(RoleContext context)> make;
  // Where the plan has servers.
  std::function<std::unique_ptr<Role>(ServerContext context)> make_server = nullptr;

  // Whether every rank takes the planned steps itself; else fast ranks take over from slow ones.
  bool plans_each_rank = true;
  // Whether a rank's clock is the number of its own steps; else all ranks' gradients count.
  bool counts_own_steps = true;
  // Whether an exchange follows the last step, where local steps would ask for none.
  bool exchanges_at_the_end = true;
  // Whether a run may end at a step that some of its ranks have passed already.
  bool allows_ranks_past_the_end = true;
  // Whether the others continue without a rank that is down, by on_peer_down() alone.
  bool tolerates_lost_peer = false;
  // Whether ranks may be lost, and others join, by Role::close() and what follows it.
  std::function<bool(const Plan& plan)> changes_members = [](const Plan&) { return false; };
  // Whether all members take the mean of their models then, as where the wiring changes: a role
  // that is made of others.
  bool changes_by_mean = false;
  // Whether ranks that have completed the same operations have the same model, so that one that is
  // behind when members change takes it from another.
  bool replicates = false;
  // Whether the weights of the models carry a mass that all ranks together keep (push-sum): a rank
  // that joins then takes a part of another's x and w; else a copy.
  std::function<bool(const Plan& plan)> keeps_mass = [](const Plan&) { return false; };
  // Whether a rank that asks for the gradient after an exchange has nothing of it, or of an earlier
  // one, outstanding, and all ranks have taken part in it: such a role may be inside a level.
  std::function<bool(const Plan& plan)> synchronous = [](const Plan&) { return false; };
  // Whether all ranks then have the same model, bit for bit.
  std::function<bool(const Plan& plan)> ranks_agree = [](const Plan&) { return false; };
  // Whether a gradient may come to nothing, e.g. because its commit is refused.
  std::function<bool(const Plan& plan)> drops_gradients = [](const Plan&) { return false; };
  // Of a role that is made of others, for ranks of the run instead of nodes: their parts. Else
  // empty.
  std::function<std::vector<std::shared_ptr<const SharedParts>>(const SharedParts& parts)>
      parts_inside = nullptr;
  // Whether a rank that has taken its last step says so to others, which then leave it out: such a
  // run cannot be made longer once some of its ranks, but not all, have ended.
  std::function<bool(const Plan& plan)> announces_end = [](const Plan&) { return false; };
  // Whether the model may be on a device other than the CPU: the role then touches vectors through
  // ATen and kernels alone, and gives them the device of ModelState::x.
  std::function<bool(const Plan& plan)> any_device = [](const Plan&) { return false; };
  // Whether the optimizer's momentum counts.
  std::function<bool(const Plan& plan)> uses_momentum = [](const Plan&) { return true; };

  // ---- promises that simulated runs check; by default none ----

  // Where nothing is compressed, and each rank steps by x <- x - rate g at every gradient.
  std::function<GradientSums(const Plan& plan)> gradient_sums = [](const Plan&) {
    return GradientSums::unknown;
  };
  std::function<SentWeight(const Plan& plan)> sent_weight = [](const Plan&) {
    return SentWeight::none;
  };
  // The most staleness of an applied update where ranks exchange after every step; -1: not
  // bounded. Of a synchronous role it is 0.
  std::function<std::int64_t(const Plan& plan)> most_staleness = [](const Plan&) { return -1; };
  // Whether the first message of each operation has the rank's own gradient, as the compressor
  // packs it, and the residual has what it leaves out.
  std::function<bool(const Plan& plan)> compresses_gradients = [](const Plan&) { return false; };
};

// Ranks of a node, of which one exchanges for the others. Groups of levels are no nodes.
inline std::int32_t node_size(const Plan& plan) {
  return plan.role->parts_inside ? 1 : plan.hierarchy;
}

// Whether ranks of such a run may be lost, and others join, by Role::close() and what follows it.
// Servers stay, and serve those that train then; of nodes they know no heads but the first ranks.
inline bool changes_members(const Plan& plan) {
  return (plan.servers == 0 || plan.hierarchy == 1) && plan.role->changes_members(plan);
}
// Whether, besides, the number of ranks may change where it resumes: servers follow those that
// train, and nodes and groups are whole at the start.
inline bool changes_ranks(const Plan& plan) {
  return plan.servers == 0 && plan.hierarchy == 1 && changes_members(plan);
}

// Levels: groups of `ranks` ranks each that train as `inside` says, and exchange with each other as
// `outside` says; `ranks` 0: not known yet. REQUIRES: `inside` is synchronous, `outside` plans each
// rank and drops no gradient.
Plan nest(const Plan& inside, std::int32_t ranks, const Plan& outside);

// All roles, the shipped ones first.
const std::vector<const RoleType*>& role_types();

// Adds a role from outside, before the first wiring is read; `type` outlives the program. Not
// thread-safe. Errors (bad_input): a name that is taken.
Expected<void> register_role(const RoleType& type);

}  // namespace grapevine
