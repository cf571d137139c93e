// SimulatedRun: the trace of a made-up run in virtual time, with stalls of which it is known where
// they are.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "apps/trace/blame.hpp"
#include "apps/trace/run_layout.hpp"

namespace grapevine::blame_test {

enum class Exchange { ring, gossip, overlapped_gossip, partial, server };

struct KnownStall {
  CulpritKind kind = CulpritKind::compute;
  Rank rank = 0, peer = -1;
  Step step = 0;  // of `rank`; of a server: its grants
  std::int64_t ns = 0;
};

struct SimulationSettings {
  Exchange exchange = Exchange::ring;
  std::int32_t workers = 4;
  Step steps = 60;
  std::uint64_t seed = 1;
  double compute_ms = 10;
  double compute_jitter = 0.1;  // sigma of the logarithm
  double slow_rank_factor = 1;  // of rank 0's computing
  bool warms_up = false;        // the first gradient of each rank takes long
  bool server_blocks = false;   // a server that holds a grant handles nothing meanwhile
  std::vector<KnownStall> stalls;
};

class SimulatedRun {
 public:
  explicit SimulatedRun(SimulationSettings settings);
  void run();

  const std::vector<TraceRecord>& records() const { return records_; }
  const RunLayout& layout() const { return layout_; }
  std::int64_t waited_ns() const { return waited_ns_; }

 private:
  struct Message {
    PayloadKind payload = PayloadKind::none;
    std::int64_t operation = -1;
    std::int32_t round = -1;
    std::int32_t index = -1;
  };
  struct OfRank {
    Step step = 0;
    bool computing = false;
    std::int64_t waits_since = -1;
    std::uint64_t sequence = 0;
    std::int64_t paused_until = 0;  // its process, or its actor, handles nothing before
    // ring and partial
    std::int64_t operation = 0;
    std::int32_t chunks = 0;
    bool running = false, begun = false;
    std::map<std::int64_t, std::vector<std::pair<Rank, Message>>> early;
    // gossip
    std::set<std::int64_t> shares;
    // server
    std::deque<Rank> queue;
    Rank holder = -1;
    Step grants = 0;
  };
  using Action = std::function<void()>;
  struct Event {
    std::int64_t time_ns;
    std::uint64_t number;
    Rank rank;
    Action action;
    bool operator<(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  OfRank& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_server(Rank rank) const { return rank >= settings_.workers; }
  double uniform(std::uint64_t what, std::uint64_t a, std::uint64_t b) const;
  std::int64_t vary(double ns, double sigma, std::uint64_t what, Rank rank, std::int64_t n) const;
  const KnownStall* stall(CulpritKind kind, Rank rank, Step step) const;
  void at(std::int64_t time_ns, Rank rank, Action action);
  TraceRecord& record(EventKind kind, Rank rank);

  void compute(Rank rank);
  std::int64_t pause_in(Rank rank, std::int64_t end_ns);
  void on_gradient(Rank rank);
  void record_message(EventKind kind, Rank rank, Rank peer, std::uint64_t sequence,
                      const Message& message);
  void send(Rank from, Rank to, Message message);
  void on_message(Rank rank, Rank from, const Message& message);
  void wait(Rank rank);
  void stop_waiting(Rank rank, Rank peer, std::uint64_t sequence);
  void end_step(Rank rank, bool computes = true);

  void start_ring(Rank rank);
  void on_chunk(Rank rank, const Message& chunk);
  void on_reduced(Rank rank);
  Rank gossip_target(Rank rank, std::int64_t round, int sign) const;
  void gossip_gradient(Rank rank);
  void on_share(Rank rank, std::int64_t round);
  void begin_partial(Rank rank);
  Rank initiator(std::int64_t operation) const;
  void serve(Rank server);
  void on_server_message(Rank rank, Rank from, const Message& message);

  const SimulationSettings settings_;
  RunLayout layout_;
  std::vector<OfRank> ranks_;
  std::priority_queue<Event> events_;
  std::map<std::pair<Rank, Rank>, std::int64_t> last_arrival_;
  std::set<const KnownStall*> used_;
  std::vector<TraceRecord> records_;
  std::int64_t now_ = 0, waited_ns_ = 0;
  std::uint64_t events_made_ = 0;
  std::pair<Rank, std::uint64_t> current_{-1, 0};  // the message that is handled
};

}  // namespace grapevine::blame_test
