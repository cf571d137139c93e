#include "gpu/cuda/nccl_communicator.hpp"

#include <nccl.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace grapevine::cuda {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kPoll{100};

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
                                                                   int rank, Deadline deadline) {
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal)
    return refused("joining an NCCL group", "an id of " + std::to_string(bytes.size()) +
                                                " bytes instead of " +
                                                std::to_string(sizeof id.internal));
  if (size < 1 || rank < 0 || rank >= size)
    return refused("joining an NCCL group",
                   "rank " + std::to_string(rank) + " of " + std::to_string(size));
  const Clock::time_point until = Clock::now() + deadline;
  std::memcpy(id.internal, bytes.data(), bytes.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::unique_ptr<NcclCommunicator> joined(new NcclCommunicator(size, rank));
  const ncclResult_t code = ncclCommInitRankConfig(&joined->communicator_, size, id, rank, &config);
  if (code != ncclSuccess && code != ncclInProgress)
    return error_of(code, "joining a group", nullptr);
  if (auto settled = joined->settle("joining a group", until); !settled) return settled.error();
  return joined;
}

NcclCommunicator::~NcclCommunicator() { abort(); }

// Until NCCL has done, in the background, what the last call asked for.
Expected<void> NcclCommunicator::settle(const char* what, Clock::time_point until) {
  while (true) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (communicator_ == nullptr) return aborted(what);
      ncclResult_t state = ncclInProgress;
      const ncclResult_t code = ncclCommGetAsyncError(communicator_, &state);
      if (code != ncclSuccess) return error_of(code, what, communicator_);
      if (state == ncclSuccess) return {};
      if (state != ncclInProgress) return error_of(state, what, communicator_);
    }
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(kPoll);
  }
  abort();
  return Error{Errc::timeout, std::string("NCCL: ") + what + ": rank " + std::to_string(rank_) +
                                  " of " + std::to_string(size_) +
                                  " waited in vain for the others; the group is given up"};
}

template <class Call>
Expected<void> NcclCommunicator::enqueue(const char* what, Deadline deadline, const Call& call) {
  const Clock::time_point until = Clock::now() + deadline;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (communicator_ == nullptr) return aborted(what);
    const ncclResult_t code = call(communicator_);
    if (code != ncclSuccess && code != ncclInProgress) return error_of(code, what, communicator_);
  }
  return settle(what, until);
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

Expected<void> NcclCommunicator::reduce_scatter(void* out, const void* in, std::int64_t n,
                                                Element type, cudaStream_t stream,
                                                Deadline deadline) {
  if (n < 0) return refused("reduce-scatter", "a negative length");
  return enqueue("reduce-scatter", deadline, [&](ncclComm_t communicator) {
    return ncclReduceScatter(in, out, static_cast<std::size_t>(n), type_of(type), ncclSum,
                             communicator, stream);
  });
}

Expected<void> NcclCommunicator::wait(cudaStream_t stream, Deadline deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) return check(state, "waiting for a collective");
    if (auto seen = error(); !seen) return seen;
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(kPoll);
  }
  abort();
  return Error{Errc::timeout, "NCCL: a collective of " + std::to_string(size_) +
                                  " ranks did not end in time; the group is given up"};
}

Expected<void> NcclCommunicator::error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return aborted("asking for errors");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(communicator_, &state);
  if (code != ncclSuccess) return error_of(code, "asking for errors", communicator_);
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return error_of(state, "in the background", communicator_);
}

void NcclCommunicator::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ != nullptr) ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

}  // namespace grapevine::cuda
