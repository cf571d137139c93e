#include "gpu/cuda/nccl_communicator.hpp"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace grapevine::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPoll{100};
// Of abort(), for a launch that another thread is in.
constexpr std::chrono::milliseconds kLongestGrace{1000};

std::atomic<int> left_behind{0};

Error error_of(ncclResult_t code, const char* what, ncclComm_t communicator) {
  std::string text = std::string("NCCL: ") + what + ": " + ncclGetErrorString(code);
  // Its last error may have several lines; ours have one.
  const char* const last = ncclGetLastError(communicator);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  for (char& c : text)
    if (c == '\n') c = ' ';
  return {code == ncclRemoteError ? Errc::peer_down : Errc::failed, std::move(text)};
}

Error aborted(const char* what) {
  return {Errc::peer_down, std::string("NCCL: ") + what + ": the group was aborted"};
}

// Runs `work` on a thread of its own, and waits for it until the deadline. False: it has not ended
// (or there is no thread to be had); the thread stays behind and is counted until it ends.
bool run_bounded(std::function<void()> work, NcclCommunicator::Deadline deadline) {
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    bool given_up = false;
  };
  const auto progress = std::make_shared<Progress>();
  try {
    std::thread([progress, work = std::move(work)] {
      work();
      const std::lock_guard<std::mutex> lock(progress->mutex);
      progress->done = true;
      if (progress->given_up) --left_behind;
      progress->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  std::unique_lock<std::mutex> lock(progress->mutex);
  if (progress->changed.wait_for(lock, deadline, [&] { return progress->done; })) return true;
  progress->given_up = true;
  ++left_behind;
  return false;
}

// Whether all that was launched has ended, and the group with it: what ncclCommDestroy needs.
bool finalize(ncclComm_t communicator, Clock::time_point until) {
  const ncclResult_t code = ncclCommFinalize(communicator);
  if (code != ncclSuccess && code != ncclInProgress) return false;
  ncclResult_t state = ncclInProgress;
  while (ncclCommGetAsyncError(communicator, &state) == ncclSuccess && state == ncclInProgress) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return state == ncclSuccess;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Two may be installed under the same name, one with CUDA and one with LibTorch.
Expected<void> check_version() {
  int loaded = 0;
  if (const ncclResult_t code = ncclGetVersion(&loaded); code != ncclSuccess)
    return error_of(code, "asking for its version", nullptr);
  if (loaded >= NCCL_VERSION_CODE && loaded / 10000 == NCCL_VERSION_CODE / 10000) return {};
  return Error{Errc::unavailable, "NCCL: libnccl.so.2 is version " + version_text(loaded) +
                                      ", this program was built with " +
                                      version_text(NCCL_VERSION_CODE) +
                                      ": put the folder of that one first into LD_LIBRARY_PATH"};
}

ncclDataType_t type_of(Element type) {
  switch (type) {
    case Element::f16:
      return ncclFloat16;
    case Element::bf16:
      return ncclBfloat16;
    case Element::f32:
      break;
  }
  return ncclFloat32;
}

}  // namespace

Expected<NcclCommunicator::Bytes> NcclCommunicator::make_id() {
  ncclUniqueId id;
  if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess)
    return error_of(code, "naming a group", nullptr);
  return Bytes(id.internal, id.internal + sizeof id.internal);
}

Expected<std::unique_ptr<NcclCommunicator>> NcclCommunicator::join(const Bytes& bytes, int size,
                                                                   int rank, Deadline deadline,
                                                                   const Cancelled& cancelled) {
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal)
    return refused("joining an NCCL group", "an id of " + std::to_string(bytes.size()) +
                                                " bytes instead of " +
                                                std::to_string(sizeof id.internal));
  if (size < 1 || rank < 0 || rank >= size)
    return refused("joining an NCCL group",
                   "rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (auto fits = check_version(); !fits) return fits.error();
  const Clock::time_point until = Clock::now() + deadline;
  std::memcpy(id.internal, bytes.data(), bytes.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::unique_ptr<NcclCommunicator> joined(new NcclCommunicator(size, rank, deadline));
  const ncclResult_t code = ncclCommInitRankConfig(&joined->communicator_, size, id, rank, &config);
  if (code != ncclSuccess && code != ncclInProgress)
    return error_of(code, "joining a group", nullptr);
  if (auto joining = joined->await_completion("joining a group", until, cancelled); !joining)
    return joining.error();
  return joined;
}

NcclCommunicator::~NcclCommunicator() {
  if (!leave()) static_cast<void>(abort());
}

// The clean end. False: it was not the time for it.
bool NcclCommunicator::leave() {
  const Expected<bool> idle = completed("leaving a group");
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!idle || !*idle || launching_ || communicator_ == nullptr) return false;
  const ncclComm_t mine = std::exchange(communicator_, nullptr);
  const auto until = Clock::now() + timeout_ / 2;
  run_bounded(
      [mine, until] {
        if (finalize(mine, until))
          ncclCommDestroy(mine);
        else
          ncclCommAbort(mine);
      },
      timeout_);
  return true;
}

// After an error ranks may disagree about what was launched, and a blocked kernel would continue
// to use the caller's memory.
Error NcclCommunicator::give_up(Error error) {
  if (const auto ended = abort(); !ended) error.message += "; " + ended.error().message;
  return error;
}

Expected<bool> NcclCommunicator::completed(const char* what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return aborted(what);
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(communicator_, &state);
  if (code != ncclSuccess) return error_of(code, what, communicator_);
  if (state != ncclSuccess && state != ncclInProgress) return error_of(state, what, communicator_);
  return state == ncclSuccess;
}

// Until NCCL has completed the last call in the background.
Expected<void> NcclCommunicator::await_completion(const char* what, Clock::time_point until,
                                                  const Cancelled& cancelled) {
  while (true) {
    const Expected<bool> now = completed(what);
    if (!now) return give_up(now.error());
    if (*now) return {};
    if (cancelled && cancelled())
      return give_up({Errc::peer_down, std::string("NCCL: ") + what + ": rank " +
                                           std::to_string(rank_) + " of " + std::to_string(size_) +
                                           ": another process is lost; the group is aborted"});
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(kPoll);
  }
  return give_up(
      {Errc::timeout, std::string("NCCL: ") + what + ": rank " + std::to_string(rank_) + " of " +
                          std::to_string(size_) +
                          ": the other ranks did not arrive in time; the group is aborted"});
}

// NCCL's call without a lock, as it may stay for long: until the GPU takes a launch. abort() knows
// meanwhile that the communicator is in use.
template <class Call>
Expected<void> NcclCommunicator::launch(const char* what, const Call& call) {
  ncclComm_t mine = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (communicator_ == nullptr) return aborted(what);
    mine = communicator_;
    launching_ = true;
  }
  const ncclResult_t code = call(mine);
  std::unique_lock<std::mutex> lock(mutex_);
  launching_ = false;
  changed_.notify_all();
  if (const ncclComm_t doomed = std::exchange(doomed_, nullptr); doomed != nullptr) {
    lock.unlock();
    const std::lock_guard<std::mutex> one_at_a_time(ending_);
    ended_ = end(doomed);
    return aborted(what);
  }
  if (communicator_ == nullptr) return aborted(what);
  if (code != ncclSuccess && code != ncclInProgress) return error_of(code, what, communicator_);
  return {};
}

template <class Call>
Expected<void> NcclCommunicator::enqueue(const char* what, Deadline deadline, const Call& call) {
  const Clock::time_point until = Clock::now() + deadline;
  if (!take_turn(until))
    return give_up({Errc::timeout, std::string("NCCL: ") + what +
                                       ": the call of another thread did not end in time; the "
                                       "group is aborted"});
  const Expected<void> launched = launch(what, call);
  const Expected<void> taken =
      launched ? await_completion(what, until, nullptr) : Expected<void>(give_up(launched.error()));
  end_turn();
  return taken;
}

bool NcclCommunicator::take_turn(Clock::time_point until) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_until(lock, until, [this] { return !enqueueing_; })) return false;
  return enqueueing_ = true;
}

void NcclCommunicator::end_turn() {
  const std::lock_guard<std::mutex> lock(mutex_);
  enqueueing_ = false;
  changed_.notify_all();
}

Expected<void> NcclCommunicator::all_reduce(void* out, const void* in, std::int64_t n, Element type,
                                            cudaStream_t stream, Deadline deadline) {
  if (n < 0) return refused("all-reduce", "a negative length");
  return enqueue("all-reduce", deadline, [&](ncclComm_t communicator) {
    return ncclAllReduce(in, out, static_cast<std::size_t>(n), type_of(type), ncclSum, communicator,
                         stream);
  });
}

Expected<void> NcclCommunicator::broadcast(void* out, const void* in, std::int64_t n, Element type,
                                           int root, cudaStream_t stream, Deadline deadline) {
  if (n < 0 || root < 0 || root >= size_)
    return refused("broadcast", std::to_string(n) + " elements from rank " + std::to_string(root) +
                                    " of " + std::to_string(size_));
  return enqueue("broadcast", deadline, [&](ncclComm_t communicator) {
    return ncclBroadcast(in, out, static_cast<std::size_t>(n), type_of(type), root, communicator,
                         stream);
  });
}

Expected<void> NcclCommunicator::all_gather(void* out, const void* in, std::int64_t n, Element type,
                                            cudaStream_t stream, Deadline deadline) {
  if (n < 0) return refused("all-gather", "a negative length");
  return enqueue("all-gather", deadline, [&](ncclComm_t communicator) {
    return ncclAllGather(in, out, static_cast<std::size_t>(n), type_of(type), communicator, stream);
  });
}

Expected<void> NcclCommunicator::wait(cudaStream_t stream, Deadline deadline) {
  constexpr const char* kWhat = "waiting for a collective";
  const Clock::time_point until = Clock::now() + deadline;
  while (true) {
    const cudaError_t passed = cudaStreamQuery(stream);
    if (passed == cudaErrorNotReady)
      static_cast<void>(cudaGetLastError());  // it is no error
    else if (auto fine = check(passed, kWhat); !fine)
      return give_up(fine.error());
    // Also where the stream has passed: abort() ends kernels in the middle, and the stream
    // continues.
    if (const auto now = completed(kWhat); !now) return give_up(now.error());
    if (passed == cudaSuccess) return {};
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(kPoll);
  }
  return give_up({Errc::timeout, "NCCL: a collective of " + std::to_string(size_) +
                                     " ranks did not end in time; the group is aborted"});
}

Expected<void> NcclCommunicator::error() {
  const auto now = completed("asking for errors");
  if (!now) return now.error();
  return {};
}

Expected<void> NcclCommunicator::abort() {
  const std::lock_guard<std::mutex> one_at_a_time(ending_);
  ncclComm_t mine = nullptr;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    mine = std::exchange(communicator_, nullptr);
    if (mine == nullptr) return ended_;
    const Deadline grace = std::min<Deadline>(kLongestGrace, timeout_);
    if (!changed_.wait_for(lock, grace, [this] { return !launching_; })) {
      doomed_ = mine;
      ended_ = Error{Errc::timeout, "NCCL: a launch does not return, so that its group of " +
                                        std::to_string(size_) + " ranks cannot be aborted"};
      return ended_;
    }
  }
  return ended_ = end(mine);
}

// ncclCommAbort joins threads of NCCL and waits for the device: with a limit only here.
Expected<void> NcclCommunicator::end(ncclComm* communicator) {
  if (run_bounded([communicator] { ncclCommAbort(communicator); }, timeout_)) return {};
  return Error{Errc::timeout, "NCCL: aborting a group of " + std::to_string(size_) +
                                  " ranks did not end in time: a thread is still blocked in it"};
}

int NcclCommunicator::threads_left_behind() { return left_behind; }

}  // namespace grapevine::cuda
