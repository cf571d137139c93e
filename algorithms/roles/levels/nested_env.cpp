#include "algorithms/roles/levels/nested_env.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

std::optional<Rank> number_in(const std::vector<Rank>& world, Rank rank) {
  const auto at = std::lower_bound(world.begin(), world.end(), rank);
  if (at == world.end() || *at != rank) return std::nullopt;
  return static_cast<Rank>(at - world.begin());
}

std::vector<Rank> group_of(Rank rank, std::int32_t size) {
  std::vector<Rank> members;
  for (Rank r = rank / size * size; r < (rank / size + 1) * size; ++r) members.push_back(r);
  return members;
}

std::vector<Rank> heads_and_servers(std::int32_t ranks, const Plan& plan) {
  std::vector<Rank> world;
  for (Rank head = 0; head < ranks; head += plan.hierarchy) world.push_back(head);
  for (Rank server = ranks; server < ranks + plan.servers; ++server) world.push_back(server);
  return world;
}

const Membership& NestedEnv::membership() const {
  if (members_) return *members_;
  members_.emplace();
  for (const Rank rank : world_) members_->alive.push_back(env_.membership().is_alive(rank));
  return *members_;
}

void NestedEnv::send(Rank to, Stamp stamp, Payload payload) {
  stamp.origin = rank_of(stamp.origin);
  env_.send(rank_of(to), stamp, std::move(payload));
}

Envelope NestedEnv::of_world(Envelope envelope) const {
  const auto from = number_in(world_, envelope.from);
  const auto origin = number_in(world_, envelope.stamp.origin);
  GRAPEVINE_CHECK(from && origin, "rank ", envelope.from, " sent a message into a group of others");
  envelope.from = *from;
  envelope.to = own_;
  envelope.stamp.origin = *origin;
  return envelope;
}

Event NestedEnv::of_run(Event event) const {
  if (event.peer >= 0) event.peer = rank_of(event.peer);
  event.stamp.origin = rank_of(event.stamp.origin);
  return event;
}

void parameters_fields(Archive& a, Parameters& parameters, std::int64_t d) {
  a.whole("step", parameters.step, 0, std::numeric_limits<std::int64_t>::max());
  a.flag("last", parameters.last);
  a.number("epoch", parameters.epoch);
  a.needs("x");
  a.vector("x", parameters.x, d);
}

}  // namespace grapevine
