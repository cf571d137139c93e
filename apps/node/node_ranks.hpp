// NodeRanks: the processes that a node runs for the pool's job.
#pragma once
#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/cluster/node_protocol.hpp"
#include "apps/launch/child_process.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct NodeRanksConfig {
  std::string secret;  // of the pool, from which that of each job is made
  // Where this node's processes find process 0; empty in the first node, which is found at
  // `own_host`, or, where it listens on all interfaces, at the address that leads to other nodes.
  std::string first_host;
  std::string own_host;
  // Without their seals.
  std::function<void(RankOutput)> on_output;
  std::function<void(RankExited)> on_exited;
};

// Starts `train` of this executable as a launcher would, with torchrun's variables; of this
// process's GRAPEVINE_ variables only the log level and the network interface go along. Children
// end with this object, and with this process, however that ends. One thread, which polls.
class NodeRanks {
 public:
  explicit NodeRanks(NodeRanksConfig config) : config_(std::move(config)) {}

  // Remaining processes of an earlier job are killed. A process that cannot be started has exited.
  void start(const StartRanks& start);
  // Nothing happens where that job does not run here.
  void signal(std::int64_t job, int number);
  void kill_all() { members_.clear(); }
  bool running() const { return !members_.empty(); }

  // Descriptors to poll for reading; then handle_ready() reads them.
  void add_to(std::vector<pollfd>& waits) const;
  void handle_ready();

 private:
  struct Member {
    std::int32_t process = 0;
    std::unique_ptr<ChildProcess> child;
  };

  Expected<std::string> head_host(const StartRanks& start) const;
  void refuse(const StartRanks& start, const Error& why) const;
  void output(std::int32_t process, bool to_err, const std::string& line) const;

  const NodeRanksConfig config_;
  std::int64_t job_ = 0;
  std::vector<Member> members_;
};

}  // namespace grapevine
