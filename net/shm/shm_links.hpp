// The links of one process to the others of its job: awaited, open, lost or returning.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/cancelled.hpp"
#include "net/placement.hpp"
#include "net/shm/shm_greeting.hpp"

namespace grapevine::shm {

// The transport's thread changes them, connect() waits for them. Decides by them which process may
// connect. Thread-safe.
class ShmLinks {
 public:
  // `names`: of the processes, for errors and the log; `absent`: processes that are lost.
  ShmLinks(const Placement& placement, std::vector<std::string> names, const JobToken& token,
           const std::vector<std::int32_t>& absent);

  const Identity& own() const { return own_; }
  const std::string& name(std::int32_t process) const;

  // The answer to a process that has proved that it belongs to the job.
  Refusal judge(const ShmHello& hello);
  // A lost process stays lost until it is expected again. True: it has returned.
  bool open(std::int32_t process);
  void lose(std::int32_t process);
  // A lost process may connect again, whatever its index.
  void expect(std::int32_t process);

  // Until every process is connected. Errors (timeout; bad_input: two have one index; peer_down:
  // one ended meanwhile; failed: cancelled): name the process.
  Expected<void> wait_connected(Clock::time_point deadline, const std::string& patience,
                                const Cancelled& cancelled);

 private:
  enum class Link { awaited, open, lost, returning };

  std::int32_t first(Link link) const;
  bool is_decided() const;

  const Identity own_;
  const std::vector<std::string> names_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;        // guarded by mutex_; by process
  std::set<std::int32_t> absent_;  // "; lost before this process joined
  std::string duplicate_;          // "; why two processes cannot both take part, else empty
};

}  // namespace grapevine::shm
