#ifdef GRAPEVINE_NCCL
#include "gpu/torch_cuda/nccl_group.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "gpu/cuda/nccl_communicator.hpp"
#include "gpu/replicas/replica_launch.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Communicator = std::unique_ptr<cuda::NcclCommunicator>;
using Deadline = cuda::NcclCommunicator::Deadline;

// A member of a group may wait for the others in NCCL or in the driver, so nothing is done to one
// after the other.
void for_all(std::size_t members, const std::function<void(std::size_t)>& work) {
  std::vector<std::future<void>> running;
  for (std::size_t i = 0; i < members; ++i)
    running.push_back(std::async(std::launch::async, work, i));
  for (auto& each : running) each.wait();
}

class NcclGroup final : public GradientGroup {
 public:
  // Of consecutive replicas. REQUIRES: at least one.
  NcclGroup(std::vector<Communicator> communicators, Duration timeout)
      : communicators_(std::move(communicators)),
        first_(static_cast<std::size_t>(communicators_.front()->rank())),
        size_(communicators_.front()->size()),
        launch_(communicators_.size(), launch_gate()),
        timeout_(timeout) {}
  // Each leaves or aborts its group, which takes the others.
  ~NcclGroup() override {
    for_all(communicators_.size(), [this](std::size_t i) { communicators_[i] = nullptr; });
  }

  // In place: NCCL takes a slice that lies where it belongs in the result.
  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    const cudaStream_t stream = stream_of(flat);
    GRAPEVINE_CHECK(flat.numel() % size_ == 0, flat.numel(), " elements in ", size_, " slices");
    const std::int64_t slice = flat.numel() / size_;
    float* const all = flat.data_ptr<float>();
    const float* const own = all + static_cast<std::int64_t>(replica) * slice;
    return launch_.run(replica - first_, timeout_, [&] {
      return communicator(replica).all_gather(all, own, slice, cuda::Element::f32, stream,
                                              std::chrono::duration_cast<Deadline>(timeout_));
    });
  }

  // In place: NCCL writes nothing at the root.
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    const cudaStream_t stream = stream_of(flat);
    float* const values = flat.data_ptr<float>();
    return launch_.run(replica - first_, timeout_, [&] {
      return communicator(replica).broadcast(values, values, flat.numel(), cuda::Element::f32,
                                             /*root=*/0, stream,
                                             std::chrono::duration_cast<Deadline>(timeout_));
    });
  }

  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& gradient) override {
    const cudaStream_t stream = stream_of(gradient);
    float* const values = gradient.data_ptr<float>();
    const auto launched = launch_.run(replica - first_, timeout_, [&] {
      return communicator(replica).all_reduce(values, values, gradient.numel(), cuda::Element::f32,
                                              stream,
                                              std::chrono::duration_cast<Deadline>(timeout_));
    });
    if (!launched) return launched;
    gradient.mul_(1.0 / static_cast<double>(size_));
    return {};
  }

  void abort() override {
    launch_.end();
    for_all(communicators_.size(), [this](std::size_t i) {
      if (const auto ended = communicators_[i]->abort(); !ended)
        spdlog::error("replica {}: {}", first_ + i, ended.error().message);
    });
  }

 private:
  static cudaStream_t stream_of(const at::Tensor& flat) {
    GRAPEVINE_CHECK(flat.is_cuda() && flat.is_contiguous() && flat.scalar_type() == at::kFloat,
                    "a collective of a tensor that is not flat float32 on a GPU");
    return c10::cuda::getCurrentCUDAStream(flat.device().index()).stream();
  }

  cuda::NcclCommunicator& communicator(std::size_t replica) {
    return *communicators_.at(replica - first_);
  }

  std::vector<Communicator> communicators_;  // of the replicas of this process
  const std::size_t first_;                  // of them
  const int size_;                           // of the group
  ReplicaLaunch launch_;
  const Duration timeout_;
};

Expected<Communicator> join(const cuda::NcclCommunicator::Bytes& id, int gpu, std::size_t size,
                            std::size_t rank, Duration timeout,
                            const std::function<bool()>& cancelled) {
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
    return cuda::NcclCommunicator::join(id, static_cast<int>(size), static_cast<int>(rank),
                                        std::chrono::duration_cast<Deadline>(timeout), cancelled);
  } catch (const std::exception& e) {
    return Error{Errc::failed, "cuda:" + std::to_string(gpu) + ": " + one_line(e)};
  }
}

}  // namespace

Expected<std::shared_ptr<GradientGroup>> join_nccl_group(const std::vector<int>& gpus,
                                                         Duration timeout) {
  const auto id = cuda::NcclCommunicator::make_id();
  if (!id) return id.error();
  std::vector<Expected<Communicator>> joined;
  for (std::size_t i = 0; i < gpus.size(); ++i) joined.emplace_back(Error{});
  for_all(gpus.size(), [&](std::size_t rank) {
    joined[rank] = join(*id, gpus[rank], gpus.size(), rank, timeout, nullptr);
  });
  // The error of a rank that did not arrive counts more than that of a rank that waited.
  const Expected<Communicator>* worst = nullptr;
  for (const auto& each : joined)
    if (!each && (worst == nullptr || worst->error().code == Errc::timeout)) worst = &each;
  if (worst != nullptr) return worst->error();
  std::vector<Communicator> communicators;
  for (auto& each : joined) communicators.push_back(*std::move(each));
  return std::shared_ptr<GradientGroup>(
      std::make_shared<NcclGroup>(std::move(communicators), timeout));
}

Expected<std::shared_ptr<GradientGroup>> join_nccl_group_of_processes(
    const std::vector<std::uint8_t>& id, int gpu, std::size_t replica, std::size_t replicas,
    Duration timeout, const std::function<bool()>& cancelled) {
  auto joined = join(id, gpu, replicas, replica, timeout, cancelled);
  if (!joined) return joined.error();
  std::vector<Communicator> communicators;
  communicators.push_back(*std::move(joined));
  return std::shared_ptr<GradientGroup>(
      std::make_shared<NcclGroup>(std::move(communicators), timeout));
}

}  // namespace grapevine
#endif
