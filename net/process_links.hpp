// The links of one process to the others of its job, as transports with connections know them:
// awaited, open, lost or returning.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "messages/expected.hpp"
#include "net/cancelled.hpp"
#include "net/placement.hpp"
#include "net/token.hpp"

namespace grapevine {

// The answer to a process that connects. The numbers are part of wire formats.
enum class Refusal : std::int32_t {
  none,
  duplicate_process,
  other_job,
  other_placement,
  too_late,
  lower_process,
  other_process
};

// The error of a refused process, for its user.
std::string describe(Refusal refusal);

std::uint64_t placement_digest(const Placement& placement);

// A process that greets others: the same for all links of a transport.
struct LinkIdentity {
  std::int32_t process = 0;
  std::uint64_t placement = 0;  // placement_digest()
  JobToken token{};
};

inline constexpr std::size_t kNonceDigits = 2 * kNonceBytes;
inline constexpr std::size_t kProofDigits = 64;

// One end of a connection, as a proof covers it. A dialler that proves itself before it knows the
// process at the other end names the one that it means, and no placement.
struct LinkEnd {
  std::int32_t process = -1;
  std::uint64_t placement = 0;
  std::string nonce;  // random, for this connection alone
};

// The proof of one end that it knows the job's token: an HMAC under it of both ends, of
// kProofDigits hexadecimal digits. `statement`: the side of the end that proves itself, and what it
// says beyond its description, so that no proof is valid in another place.
std::string link_proof(const JobToken& token, std::string_view transport,
                       std::string_view statement, const LinkEnd& dialler, const LinkEnd& listener);

// The arguments of RemoteTransport::connect(). Errors: bad_input.
Expected<void> check_processes(const std::vector<std::string>& addresses,
                               const Placement& placement);

// The thread of a transport changes them, connect() waits for them. Decides by them which process
// may connect. Thread-safe.
class ProcessLinks {
 public:
  using Clock = std::chrono::steady_clock;

  // `names`: of the processes, for errors and the log; `absent`: processes that are lost.
  ProcessLinks(const Placement& placement, std::vector<std::string> names,
               const std::vector<std::int32_t>& absent);

  const std::string& name(std::int32_t process) const;

  // The answer to a process that has proved that it belongs to the job, and says so of itself.
  // `placement`: its placement_digest(); `to`: the process that it has dialled.
  Refusal judge(std::int32_t process, std::uint64_t placement, std::int32_t to);
  // A lost process stays lost until it is expected again. True: it has returned.
  bool open(std::int32_t process);
  void lose(std::int32_t process);
  // A lost process may connect again, whatever its index.
  void expect(std::int32_t process);

  // Until every process is connected. `lost`: see ConnectOptions; where it is given, a broken link
  // is no error if the run reports its process as lost within kLossIsReported. Errors
  // (timeout; bad_input: two have one index; peer_down: one ended meanwhile; failed: cancelled):
  // name the process.
  Expected<void> wait_connected(Clock::time_point deadline, const std::string& timeout,
                                const Cancelled& cancelled, const LostMeanwhile& lost = {});

 protected:
  std::int32_t own_process() const { return own_process_; }
  std::uint64_t placement() const { return digest_; }

 private:
  enum class Link { awaited, open, lost, returning };

  std::int32_t first(Link link) const;
  bool is_connected() const;
  void skip_lost(const LostMeanwhile& lost);

  const std::int32_t own_process_;
  const std::uint64_t digest_;  // of the placement
  const std::vector<std::string> names_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;        // guarded by mutex_; by process
  std::set<std::int32_t> absent_;  // "; lost before this process joined
  std::string duplicate_;          // "; why two processes cannot both take part, else empty
};

}  // namespace grapevine
