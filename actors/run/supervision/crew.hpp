// Crew: the actors of a run, as its supervisor addresses them. A vacant place has none: what is
// sent to it goes nowhere.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "actors/protocol/run.hpp"

namespace grapevine {

// Used only in its supervisor.
class Crew {
 public:
  Crew() = default;  // of a run that has not begun
  // Monitors all of them.
  Crew(SupervisorActor::pointer supervisor, BeginRun actors);

  bool empty() const { return actors_.peers.empty(); }
  std::int32_t processes() const { return static_cast<std::int32_t>(actors_.agents.size()) + 1; }
  bool evaluates() const { return static_cast<bool>(actors_.evaluator); }
  bool traces() const { return static_cast<bool>(actors_.tracer); }

  // The rank of that peer; -1: it is none.
  Rank rank_behind(const caf::actor_addr& peer) const;
  // Whether it was an actor of a process that has returned since, and is none of the present ones.
  bool is_former(const caf::actor_addr& actor) const { return former_.count(actor) > 0; }
  // The process of that agent; 0: it is none.
  std::int32_t process_behind(const caf::actor_addr& agent) const;
  // REQUIRES: a process other than the coordinator's.
  const ProcessAgentActor& agent_of(std::int32_t process) const {
    return actors_.agents[static_cast<std::size_t>(process) - 1];
  }

  template <class Message>
  void send_to_ranks(const Message& message) const {
    for (const PeerActor& peer : actors_.peers) supervisor_->send(peer, message);
  }
  // To all of them but `absent`, ascending.
  template <class Message>
  void send_to_ranks_but(const std::vector<Rank>& absent, const Message& message) const {
    for (std::size_t i = 0; i < actors_.peers.size(); ++i)
      if (!std::binary_search(absent.begin(), absent.end(), static_cast<Rank>(i)))
        supervisor_->send(actors_.peers[i], message);
  }
  // REQUIRES: processes other than the coordinator's.
  template <class Message>
  void send_to(const std::vector<std::int32_t>& processes, const Message& message) const {
    for (const std::int32_t process : processes) supervisor_->send(agent_of(process), message);
  }
  template <class Message>
  void send_to_processes(const Message& message) const {
    for (const ProcessAgentActor& agent : actors_.agents) supervisor_->send(agent, message);
  }
  // To the evaluator and the ModelFetcher, where there are any.
  void report_members(const MembersChanged& changed) const {
    if (actors_.evaluator) supervisor_->send(actors_.evaluator, changed);
    if (actors_.fetcher) supervisor_->send(actors_.fetcher, changed);
  }
  // To the ModelFetcher, where there is one.
  void report_lost(Rank rank) const {
    if (actors_.fetcher) supervisor_->send(actors_.fetcher, PeerLost{rank, ""});
  }
  // Whether models of other processes must be fetched for their mean.
  bool averages() const { return static_cast<bool>(actors_.averager); }
  // REQUIRES: averages().
  void average(AverageModels order) const { supervisor_->send(actors_.averager, std::move(order)); }
  // REQUIRES: the run has checkpoints.
  void write(WriteCheckpoint checkpoint) const {
    supervisor_->send(actors_.writer, std::move(checkpoint));
  }
  // To the writer, where there is one: it keeps the best checkpoint.
  void report_validation(const EpochEvaluated& evaluated) const {
    if (actors_.writer) supervisor_->send(actors_.writer, evaluated);
  }
  // REQUIRES: the run has checkpoints.
  void prepare_shards(std::int64_t cut, std::string folder) const {
    supervisor_->send(actors_.writer, PrepareShards{cut, std::move(folder), actors_.peers});
  }
  void drop_shards() const {
    if (actors_.writer) supervisor_->send(actors_.writer, DropShards{});
  }
  // REQUIRES: traces().
  void trace(const ClockSample& sample) const { supervisor_->send(actors_.tracer, sample); }
  void trace(const SettingsChange& change) const { supervisor_->send(actors_.tracer, change); }
  // REQUIRES: traces().
  void close_trace(bool failed) const;

  // The actors of a process that has returned, in the place of those that have ended; process 0:
  // peers alone. REQUIRES: a peer for each of `ranks`.
  void replace(std::int32_t process, ProcessAgentActor agent, const std::vector<Rank>& ranks,
               std::vector<PeerActor> peers);

  // Appends the actor of the next rank.
  void add_server(PeerActor server);

  // By rank; servers that serve no more are among them.
  const std::vector<PeerActor>& peers() const { return actors_.peers; }
  // Its end is reported as any other.
  void end_rank(Rank rank) const;
  void end_ranks() const;
  // Ends the ranks, the evaluator, the writer, the tracer and those that fetch models, without an
  // answer.
  void dismiss() const;

 private:
  template <class Handle>
  void retire(Handle& place);
  template <class Handle>
  void take(Handle& place, Handle actor);

  SupervisorActor::pointer supervisor_ = nullptr;
  BeginRun actors_;
  std::set<caf::actor_addr> former_;
};

}  // namespace grapevine
