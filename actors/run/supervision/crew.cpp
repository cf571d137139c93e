#include "actors/run/supervision/crew.hpp"

#include "actors/record/close_trace.hpp"

namespace grapevine {
namespace {

template <class Handle>
void monitor(SupervisorActor::pointer supervisor, const Handle& actor) {
  if (actor) supervisor->monitor(actor);
}

template <class Handle>
void dismiss_one(SupervisorActor::pointer supervisor, const Handle& actor) {
  if (!actor) return;
  supervisor->demonitor(actor.address());
  supervisor->send_exit(actor, caf::exit_reason::user_shutdown);
}

}  // namespace

Crew::Crew(SupervisorActor::pointer supervisor, BeginRun actors)
    : supervisor_(supervisor), actors_(std::move(actors)) {
  for (const PeerActor& peer : actors_.peers) monitor(supervisor, peer);
  for (const ProcessAgentActor& agent : actors_.agents) monitor(supervisor, agent);
  monitor(supervisor, actors_.evaluator);
  monitor(supervisor, actors_.writer);
  monitor(supervisor, actors_.tracer);
  monitor(supervisor, actors_.fetcher);
  monitor(supervisor, actors_.averager);
}

Rank Crew::rank_behind(const caf::actor_addr& peer) const {
  for (std::size_t i = 0; i < actors_.peers.size(); ++i)
    if (actors_.peers[i].address() == peer) return static_cast<Rank>(i);
  return -1;
}

std::int32_t Crew::process_behind(const caf::actor_addr& agent) const {
  for (std::size_t i = 0; i < actors_.agents.size(); ++i)
    if (actors_.agents[i].address() == agent) return static_cast<std::int32_t>(i) + 1;
  return 0;
}

void Crew::replace(std::int32_t process, ProcessAgentActor agent, const std::vector<Rank>& ranks,
                   std::vector<PeerActor> peers) {
  const auto index = [](auto number) { return static_cast<std::size_t>(number); };
  if (process > 0) retire(actors_.agents[index(process) - 1]);
  for (const Rank rank : ranks) retire(actors_.peers[index(rank)]);
  if (process > 0) take(actors_.agents[index(process) - 1], std::move(agent));
  for (std::size_t i = 0; i < ranks.size(); ++i)
    take(actors_.peers[index(ranks[i])], std::move(peers[i]));
}

template <class Handle>
void Crew::retire(Handle& place) {
  if (place) former_.insert(place.address());
  place = Handle();
}

// CAF makes an address of the host, the process number and a counter. A process may have the number
// of an earlier one, as every process of a container that is started again has: its actors have
// addresses of former ones, or of actors in the places of another process that is lost.
template <class Handle>
void Crew::take(Handle& place, Handle actor) {
  if (!actor) return;
  const caf::actor_addr address = actor.address();
  for (PeerActor& peer : actors_.peers)
    if (peer && peer.address() == address) peer = PeerActor();
  for (ProcessAgentActor& lost : actors_.agents)
    if (lost && lost.address() == address) lost = ProcessAgentActor();
  former_.erase(address);
  monitor(supervisor_, actor);
  place = std::move(actor);
}

void Crew::add_server(PeerActor server) {
  monitor(supervisor_, server);
  actors_.peers.push_back(std::move(server));
}

void Crew::close_trace(bool failed) const {
  grapevine::close_trace(supervisor_, actors_.tracer, actors_.peers, failed);
}

void Crew::end_rank(Rank rank) const {
  supervisor_->send_exit(actors_.peers[static_cast<std::size_t>(rank)],
                         caf::exit_reason::user_shutdown);
}

void Crew::end_ranks() const {
  for (const PeerActor& peer : actors_.peers)
    supervisor_->send_exit(peer, caf::exit_reason::user_shutdown);
}

void Crew::dismiss() const {
  for (const PeerActor& peer : actors_.peers) dismiss_one(supervisor_, peer);
  // Other processes may hold references to these actors, so they would not end by themselves.
  dismiss_one(supervisor_, actors_.evaluator);
  dismiss_one(supervisor_, actors_.writer);
  dismiss_one(supervisor_, actors_.tracer);
  dismiss_one(supervisor_, actors_.fetcher);
  dismiss_one(supervisor_, actors_.averager);
}

}  // namespace grapevine
