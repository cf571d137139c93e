// NCCL inside a group of ranks, one GPU each: collectives on a stream, errors as values.
//
// Communicators are non-blocking ones: NCCL's own calls return at once and continue in the
// background. No call here waits longer than its deadline, and a group that lost a member is left
// by abort(). Whether a group can use NCCL at all, gpu/replicas/gradient_group.hpp decides.
//
// Any thread may call abort(), error() and wait() at any time. Collectives of several threads run
// one after the other; but each rank must call the same ones in the same order, so one thread per
// rank should. Every error but bad_input aborts the group: nothing of it uses the caller's memory
// then, unless the error reports that NCCL still uses it.
//
// A GPU takes a bounded number of launches, of the order of a thousand, before the next one waits
// in the background until there is room. So wait() for each few collectives.
//
// One communicator per group. Belongs to the device that was current at join().
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda/error.hpp"

struct ncclComm;

namespace grapevine::cuda {

enum class Element { f32, f16, bf16 };

class NcclCommunicator {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using Deadline = std::chrono::milliseconds;  // from the call on
  // Asked several thousand times a second by the thread that waits. Null: never.
  using Cancelled = std::function<bool()>;

  // What names a new group; one rank makes it, and sends it to the others as it is.
  static Expected<Bytes> make_id();

  // Every rank of the group, [0, size), calls this with the same id. Returns when all have joined.
  // `deadline` also bounds the group's end: each of abort() and the destructor. `cancelled`: gives
  // up, where a process that is to join has died: NCCL waits for it. Errors: unavailable (the NCCL
  // that was loaded is older than the one that this was built with, or of another major version),
  // timeout (not all joined in time), peer_down (cancelled), bad_input (an id of another length, a
  // rank outside), failed (NCCL's own, with its text). Nothing is left behind then.
  static Expected<std::unique_ptr<NcclCommunicator>> join(const Bytes& id, int size, int rank,
                                                          Deadline deadline,
                                                          const Cancelled& cancelled = nullptr);

  // Finalizes and destroys a group that nothing went wrong in, which takes all ranks: each must do
  // it, on a thread of its own. Any other, and one whose other ranks do not arrive, is aborted.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }

  // Each launches on `stream` and returns when NCCL has taken it: the result is there when the
  // stream has passed. n: elements of `in`; n of `out` for the first two. Sums. In place where out
  // == in. Errors: timeout (NCCL did not take it: a peer is missing; the group is then aborted),
  // peer_down (aborted, or a peer's failure was seen), failed.
  Expected<void> all_reduce(void* out, const void* in, std::int64_t n, Element type,
                            cudaStream_t stream, Deadline deadline);
  Expected<void> broadcast(void* out, const void* in, std::int64_t n, Element type, int root,
                           cudaStream_t stream, Deadline deadline);
  // out: n * size() elements, the slices of all ranks in their order; in: n elements, this rank's
  // slice. In place where `in` is its place in `out`.
  Expected<void> all_gather(void* out, const void* in, std::int64_t n, Element type,
                            cudaStream_t stream, Deadline deadline);

  // Waits until the stream has passed what was launched. Errors: timeout, peer_down (also where the
  // stream has passed because the group was aborted), failed.
  Expected<void> wait(cudaStream_t stream, Deadline deadline);

  // An error in the background since, if any. Errors: peer_down, failed.
  Expected<void> error();

  // Ends the group for this rank, its kernels on the GPU included; where a peer died. Idempotent:
  // later calls return what the first did. NCCL forbids to abort what another thread is in: one
  // that does not leave NCCL in time aborts the group itself, when it does. Errors: timeout: NCCL
  // still uses the group; a thread stays blocked in it.
  Expected<void> abort();

  // Threads that are in NCCL's calls which end a group, beyond their deadline. While there are any,
  // the process can only be ended by _Exit: destructors would free memory that they use.
  static int threads_left_behind();

 private:
  NcclCommunicator(int size, int rank, Deadline timeout)
      : size_(size), rank_(rank), timeout_(timeout) {}

  template <class Call>
  Expected<void> enqueue(const char* what, Deadline deadline, const Call& call);
  template <class Call>
  Expected<void> launch(const char* what, const Call& call);
  bool take_turn(std::chrono::steady_clock::time_point until);
  void end_turn();
  Expected<void> await_completion(const char* what, std::chrono::steady_clock::time_point until,
                                  const Cancelled& cancelled);
  Expected<bool> completed(const char* what);  // false: NCCL is still working
  Error give_up(Error error);
  Expected<void> end(ncclComm* communicator);
  bool leave();

  const int size_, rank_;
  const Deadline timeout_;
  std::mutex ending_;     // held by abort(), so that a second one returns when all has ended
  Expected<void> ended_;  // guarded by ending_: the result of the first abort()

  std::mutex mutex_;                  // guards the rest; held for single quick calls
  std::condition_variable changed_;   // one of the two below went to false
  bool enqueueing_ = false;           // a collective is on its way until NCCL has taken it
  bool launching_ = false;            // a thread is in NCCL with the communicator
  ncclComm* communicator_ = nullptr;  // null: aborted
  ncclComm* doomed_ = nullptr;        // aborted while a thread was in it: that one ends it
};

}  // namespace grapevine::cuda
