// NodeService: one node of a pool, from its start to its end.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/node_agent.hpp"
#include "actors/cluster/node_pool.hpp"
#include "apps/console/event_queue.hpp"
#include "apps/console/signal_pipe.hpp"
#include "apps/node/node_log.hpp"
#include "apps/node/node_ranks.hpp"
#include "messages/expected.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// Of the command line, as they were typed.
struct NodeOptions {
  std::string listen;          // HOST:PORT
  std::string join;            // HOST:PORT of the first node; empty: this is the first
  std::int32_t slots = 1;      // 1 .. kMaxSlots
  std::string secret_file;     // empty: the variable of the environment
  std::string tls;             // folder of certificates; empty: without
  double join_timeout_s = 60;  // seconds to try to reach the first node
  double timeout_s = 30;       // seconds of silence after which another node counts as dead
  bool json = false;
};

// Listens, joins the pool (the first node is its keeper), starts processes of jobs and passes their
// output on. All of it runs on the thread of run(); what actors report comes through a queue.
class NodeService {
 public:
  // `first`: null: this is the first node. `secret`: that of all nodes and submitters; empty: none.
  // `tls`: null: without. `options` and `console` outlive the node.
  NodeService(const NodeOptions& options, ListenAddress listen, std::optional<ListenAddress> first,
              std::string secret, std::shared_ptr<const tcp::TlsContext> tls, Console& console);
  ~NodeService();
  NodeService(const NodeService&) = delete;
  NodeService& operator=(const NodeService&) = delete;

  // Until a signal asks the node to leave, or the first node is lost. Errors: io where the address
  // cannot be listened on; peer_down where the first node does not answer or is lost; what it
  // refuses.
  Expected<void> run();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_first() const;
  bool finished() const;
  Expected<void> serve();

  // ---- the beginning ----
  Expected<void> open();

  // Where others reach this node, as far as it knows.
  std::string own_address() const;
  NodePoolConfig pool_config();
  NodeAgentConfig agent_config();
  Expected<void> enlist();
  Expected<void> greet();
  Expected<void> find_pool();
  NodeRanksConfig ranks_config();
  std::string first_text() const;

  // ---- the loop ----
  void turn();
  int poll_timeout_ms() const;
  bool stop_asked();
  void on_signal(int number);
  void leave();
  void end_soon();
  void on_pool_gone(PoolGone how);
  static std::string describe(PoolGone how);

  const NodeOptions& options_;
  ListenAddress listen_;
  const std::optional<ListenAddress> first_;  // nothing: this is the first node
  const std::string secret_;
  const std::shared_ptr<const tcp::TlsContext> tls_;  // null: without TLS
  std::string program_;                               // of the processes of jobs
  std::string address_;  // where others reach this node, as far as it knows
  NodeLog log_;
  SignalPipe signals_;
  EventQueue queue_;
  std::optional<NodeRanks> ranks_;
  std::optional<Clock::time_point> end_at_;
  std::optional<Error> failure_;
  bool stop_ = false;

  // Last: its actors use the members above, and end with it.
  caf::actor_system_config system_config_;
  std::optional<caf::actor_system> system_;
  NodePoolActor pool_;
  SealedSession session_;  // with it; its `from` is the agent's
  NodeAgentActor agent_;
  std::vector<caf::actor> own_;
};

}  // namespace grapevine
