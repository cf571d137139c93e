#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct Call {
  const void* in = nullptr;
  void* out = nullptr;
};

// What the ranks of a group share. Every rank has at most one call that is not taken.
struct Group {
  std::mutex mutex;
  // Guarded by mutex.
  std::size_t joined = 0;
  std::vector<Call> calls;  // of this collective, by rank
  std::size_t called = 0;   // ranks that have called it
  std::uint64_t taken = 0;  // collectives
};

std::mutex groups_mutex;
std::map<std::string, std::weak_ptr<Group>> groups;  // by id; guarded by groups_mutex
std::atomic<std::uint64_t> ids{0};

}  // namespace

struct ncclComm {
  std::size_t size = 1;
  std::size_t rank = 0;
  std::shared_ptr<Group> group;
  std::atomic<std::uint64_t> calls{0};  // that this rank has made
  std::atomic<bool> finalized{false};
  std::atomic<int> users{0};  // calls that are in it
};

EmulatedNccl emulated_nccl;

namespace {

// `work` has the calls of all ranks. It runs in the last one.
using Collective = std::function<void(const std::vector<Call>&)>;

ncclResult_t run(const Call& call, const Collective& work, ncclComm_t communicator) {
  ++communicator->users;
  if (emulated_nccl.gpu_is_full) {
    ++emulated_nccl.launching;
    while (emulated_nccl.gpu_is_full) std::this_thread::yield();
    --emulated_nccl.launching;
  }
  {
    Group& group = *communicator->group;
    const std::lock_guard<std::mutex> lock(group.mutex);
    group.calls[communicator->rank] = call;
    ++communicator->calls;
    if (++group.called == communicator->size) {
      work(group.calls);
      group.called = 0;
      ++group.taken;
    }
  }
  --communicator->users;
  return ncclInProgress;
}

std::size_t element_bytes(ncclDataType_t type) { return type == ncclFloat32 ? 4 : 2; }

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// The sum of n elements of each rank's memory.
std::vector<float> sum(const std::vector<Call>& calls, std::size_t n) {
  std::vector<float> all(n, 0.0F);
  for (const Call& call : calls)
    for (std::size_t i = 0; i < n; ++i) all[i] += static_cast<const float*>(call.in)[i];
  return all;
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  const std::uint64_t number = ++ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  *communicator = new ncclComm;
  (*communicator)->size = static_cast<std::size_t>(size);
  (*communicator)->rank = static_cast<std::size_t>(rank);
  {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    std::weak_ptr<Group>& known = groups[std::string(id.internal, sizeof id.internal)];
    std::shared_ptr<Group> group = known.lock();
    if (!group) group = std::make_shared<Group>();
    known = group;
    (*communicator)->group = std::move(group);
  }
  Group& group = *(*communicator)->group;
  const std::lock_guard<std::mutex> lock(group.mutex);
  group.calls.resize(static_cast<std::size_t>(size));
  ++group.joined;
  ++emulated_nccl.open;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  {
    Group& group = *communicator->group;
    const std::lock_guard<std::mutex> lock(group.mutex);
    const bool complete = group.joined == communicator->size && group.taken == communicator->calls;
    *state = complete ? ncclSuccess : ncclInProgress;
  }
  if (communicator->finalized && emulated_nccl.finalize_hangs) *state = ncclInProgress;
  if (emulated_nccl.remote_error) *state = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = emulated_nccl.version != 0 ? emulated_nccl.version.load() : NCCL_VERSION_CODE;
  return ncclSuccess;
}

// NCCL forbids to abort a group while another thread is in one of its calls.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator->users > 0) ++emulated_nccl.misused;
  while (emulated_nccl.abort_hangs || communicator->users > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete communicator;
  ++emulated_nccl.aborted;
  --emulated_nccl.open;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  if (communicator->users > 0 || communicator->finalized) ++emulated_nccl.misused;
  communicator->finalized = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator->users > 0 || !communicator->finalized) ++emulated_nccl.misused;
  delete communicator;
  ++emulated_nccl.destroyed;
  --emulated_nccl.open;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t communicator, cudaStream_t) {
  const auto work = [n, type](const std::vector<Call>& calls) {
    if (calls.size() == 1) return copy(calls[0].out, calls[0].in, n * element_bytes(type));
    const std::vector<float> all = sum(calls, n);
    for (const Call& call : calls) copy(call.out, all.data(), n * sizeof(float));
  };
  return run({in, out}, work, communicator);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t) {
  const auto work = [n, type, root](const std::vector<Call>& calls) {
    const void* const from = calls[static_cast<std::size_t>(root)].in;
    for (const Call& call : calls) copy(call.out, from, n * element_bytes(type));
  };
  return run({in, out}, work, communicator);
}

// Each rank gives the slice that it has, which may lie in its own `out` only where it belongs.
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t) {
  const std::size_t bytes = n * element_bytes(type);
  const char* const own = static_cast<char*>(out) + communicator->rank * bytes;
  const bool inside = in >= out && in < static_cast<char*>(out) + communicator->size * bytes;
  if (inside && in != own) ++emulated_nccl.misused;
  const auto work = [bytes](const std::vector<Call>& calls) {
    for (const Call& call : calls)
      for (std::size_t rank = 0; rank < calls.size(); ++rank)
        copy(static_cast<char*>(call.out) + rank * bytes, calls[rank].in, bytes);
  };
  return run({in, out}, work, communicator);
}
