// NestedEnv: the environment of a role whose world is a part of the run: some of its ranks, under
// numbers of their own.
#pragma once
#include <optional>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/env.hpp"
#include "algorithms/wiring/plan.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// The number of `rank` in a world of these ranks, ascending; none: it is outside.
std::optional<Rank> number_in(const std::vector<Rank>& world, Rank rank);
// The ranks of the node or group of `rank`, `size` each.
std::vector<Rank> group_of(Rank rank, std::int32_t size);
// Those that exchange for the nodes or groups of `ranks` ranks, plan.hierarchy each, and the plan's
// servers.
std::vector<Rank> heads_and_servers(std::int32_t ranks, const Plan& plan);

// Requests for gradients, timers and the end concern the role around it: they are left to it.
class NestedEnv : public Env {
 public:
  // `world`: the run's ranks, ascending; `own`: this rank's number. All outlive it.
  NestedEnv(Env& env, const std::vector<Rank>& world, Rank own)
      : env_(env), world_(world), own_(own) {}

  Rank rank() const override { return own_; }
  const Membership& membership() const override;
  Timestamp now() const override { return env_.now(); }
  Rng& rng() override { return env_.rng(); }
  void send(Rank to, Stamp stamp, Payload payload) override;
  void recycle(FrozenTensor buffer) override { env_.recycle(std::move(buffer)); }
  void record(const Event& event) override { env_.record(of_run(event)); }

  // A message of the run as this world sees it. REQUIRES: its sender is in this world.
  Envelope of_world(Envelope envelope) const;

 protected:
  Event of_run(Event event) const;

  Env& env_;

 private:
  Rank rank_of(Rank number) const { return world_[static_cast<std::size_t>(number)]; }

  const std::vector<Rank>& world_;
  const Rank own_;
  mutable std::optional<Membership> members_;  // made when it is asked for
};

// The state of a message from the head of a node or group, with a model of d.
void parameters_fields(Archive& a, Parameters& parameters, std::int64_t d);

}  // namespace grapevine
