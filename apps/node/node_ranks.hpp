// NodeRanks: the processes that a node runs for the pool's job.
#pragma once
#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/cluster/node_protocol.hpp"
#include "apps/launch/child_group.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct NodeRanksConfig {
  std::string program;  // see job_program()
  std::string secret;   // of the pool, from which that of each job is made
  std::string tls;      // --tls of the processes; empty: without TLS
  // Where this node's processes find process 0; empty in the first node, which is found at
  // `own_host`, or, where it listens on all interfaces, at the address that leads to other nodes.
  std::string first_host;
  std::string own_host;
  std::string pool;  // HOST:PORT of the first node
  // Without their seals.
  std::function<void(RankOutput)> on_output;
  std::function<void(RankExited)> on_exited;
};

// Starts `train` of this executable as a launcher would, with torchrun's variables; of this
// process's GRAPEVINE_ variables only the log level and the network interface go along. Children
// end with this object, and with this process, however that ends. One thread, which polls.
class NodeRanks {
 public:
  explicit NodeRanks(NodeRanksConfig config);

  // Remaining processes of an earlier job are killed. A process that cannot be started has exited.
  void start(const StartRanks& start);
  // `process` -1: all of the job. Nothing happens where it does not run here.
  void signal(std::int64_t job, int number, std::int32_t process);
  void kill_all() { children_.clear(); }
  bool running() const { return children_.running(); }

  // As ChildGroup's.
  void add_to(std::vector<pollfd>& waits) { children_.add_to(waits, true); }
  void handle(const std::vector<pollfd>& waits);

 private:
  // Whether processes on other nodes take part, now or later.
  static bool spreads(const StartRanks& start) {
    return start.grows || start.count < start.processes;
  }
  Expected<std::string> head_host(const StartRanks& start) const;
  std::vector<std::string> variables_of(const StartRanks& start, std::int32_t index,
                                        const std::string& head) const;
  void refuse(const StartRanks& start, const Error& why) const;
  void write(std::int32_t process, bool to_err, const std::string& line) const;

  const NodeRanksConfig config_;
  std::int64_t job_ = 0;
  ChildGroup children_;
  std::vector<std::int32_t> processes_;  // by the number of the child
};

}  // namespace grapevine
