// NodeLog: the lines that a node prints.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "actors/cluster/node_pool.hpp"
#include "apps/console/line_writer.hpp"
#include "apps/console/signal_pipe.hpp"

namespace grapevine {

// For people; with --json for programs: one object per line. A reader that does not read delays
// nothing else. Not thread-safe: belongs to the node's main thread.
class NodeLog {
 public:
  NodeLog(Console& console, bool json);

  // At the end of the node.
  void drain(SignalPipe& signals);

  void listening(const std::string& address);
  void joined(const std::string& first, const Enlisted& pool);
  void status(const PoolStatus& status, const std::string& what);
  void note(const std::string& text);

 private:
  void put(const nlohmann::ordered_json& line);
  void write(const std::string& text);

  const bool json_;
  LineWriter writer_;
};

}  // namespace grapevine
