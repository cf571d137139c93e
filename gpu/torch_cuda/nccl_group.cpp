#ifdef GRAPEVINE_NCCL
#include "gpu/torch_cuda/nccl_group.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <future>
#include <utility>

#include "gpu/cuda/nccl_communicator.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Communicators = std::vector<std::unique_ptr<cuda::NcclCommunicator>>;
using Deadline = cuda::NcclCommunicator::Deadline;

class NcclGroup final : public GradientGroup {
 public:
  NcclGroup(Communicators communicators, Deadline patience)
      : communicators_(std::move(communicators)), patience_(patience) {}

  Expected<void> mean(std::size_t replica, at::Tensor& gradient) override {
    GRAPEVINE_CHECK(
        gradient.is_cuda() && gradient.is_contiguous() && gradient.scalar_type() == at::kFloat,
        "the mean of a gradient that is not flat float32 on a card");
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(gradient.device().index()).stream();
    float* const values = gradient.data_ptr<float>();
    const auto summed = communicators_[replica]->all_reduce(values, values, gradient.numel(),
                                                            cuda::Element::f32, stream, patience_);
    if (!summed) return summed;
    gradient.mul_(1.0 / static_cast<double>(communicators_.size()));
    return {};
  }

  void abort() override {
    for (const auto& communicator : communicators_) communicator->abort();
  }

 private:
  const Communicators communicators_;
  const Deadline patience_;
};

}  // namespace

// Every rank of a group waits for all others in join(), so each has a thread of its own there.
Expected<std::shared_ptr<GradientGroup>> join_nccl_group(const std::vector<int>& cards,
                                                         Duration patience) {
  const auto deadline = std::chrono::duration_cast<Deadline>(patience);
  const auto id = cuda::NcclCommunicator::make_id();
  if (!id) return id.error();
  const auto size = static_cast<int>(cards.size());
  std::vector<std::future<Expected<std::unique_ptr<cuda::NcclCommunicator>>>> joins;
  for (int rank = 0; rank < size; ++rank)
    joins.push_back(std::async(std::launch::async, [&, rank] {
      const c10::cuda::CUDAGuard guard(
          static_cast<c10::DeviceIndex>(cards[static_cast<std::size_t>(rank)]));
      return cuda::NcclCommunicator::join(*id, size, rank, deadline);
    }));
  Communicators communicators;
  Expected<void> all;
  for (auto& join : joins) {
    auto joined = join.get();
    if (joined)
      communicators.push_back(*std::move(joined));
    else
      all = joined.error();
  }
  if (!all) return all.error();
  return std::shared_ptr<GradientGroup>(
      std::make_shared<NcclGroup>(std::move(communicators), deadline));
}

}  // namespace grapevine
#endif
