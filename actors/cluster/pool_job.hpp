// PoolJob: the processes of a pool's job, and the reason of its end. It sends nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/cluster/node_protocol.hpp"
#include "actors/cluster/output/line_parts.hpp"
#include "actors/cluster/process_supervision.hpp"
#include "messages/expected.hpp"
#include "net/addresses.hpp"

namespace grapevine {

struct PoolJob {
  struct Process {
    HeldError held;
    LineJoiner out, err;  // of lines that come in parts
    bool ended = false;
  };
  struct Share {
    Enlist node;
    std::int32_t first = 0, count = 0;
  };
  // Later ones replace earlier ones as the reason for the job's failure.
  enum class Cause { none, stopped, lost, exited, killed, bad_input, node_died };
  using Write = std::function<void(std::int32_t process, std::string error)>;

  explicit PoolJob(Duration kill_grace) : grace(kill_grace) {}

  // Nothing where the job has no such process.
  Process* find(std::int32_t process);
  // "rank 3 on node HOST:PORT".
  std::string where(std::int32_t process) const;
  bool all_ended() const;
  // The processes of a share count as ended; returns whether one of them had not.
  bool abandon(const Share& share);

  void blame(Cause why, Error what, std::int32_t process);
  // A line of the stderr of process 0.
  void look_for_control(const std::string& line);
  // REQUIRES: the job has that process.
  void on_exited(const RankExited& exited);
  // All processes have ended: completes `error`, and writes the errors that it does not repeat.
  void conclude(const Write& write);

  std::int64_t id = 0;
  std::string user;
  SubmitterActor submitter;
  std::uint64_t session = 0;  // of the submitter
  std::vector<Share> shares;
  std::vector<Process> processes;
  ReservedPort port;               // where process 0 listens
  std::string nonce;               // of its secret
  std::uint16_t control_port = 0;  // of process 0; 0: it has reported none yet
  Cause cause = Cause::none;
  Error error;
  std::int32_t blamed = -1;  // the process that `error` quotes
  bool ending = false;       // asked to end: how processes end is no longer an error
  bool stopping = false;     // on request: not a failure
  bool interrupted = false;  // by a SIGINT
  GracePeriod grace;
  std::string hint;  // of resuming, from the error of a process

 private:
  void blame_exit(const RankExited& exited, const std::string& who, const std::string& said);
};

}  // namespace grapevine
