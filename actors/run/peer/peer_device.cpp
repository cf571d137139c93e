// Where a rank keeps its model: in the host's memory, or on its worker's device.
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "actors/run/peer.hpp"
#include "gpu/timing/work_span.hpp"
#include "messages/check.hpp"
#include "messages/device/model_vectors.hpp"
#include "messages/device/ready_event.hpp"

namespace grapevine {
namespace {

// What a handler enqueues is the exchange's share in the work of the device.
class MeasuredScope final : public StreamScope {
 public:
  explicit MeasuredScope(DeviceRuntime& device)
      : scope_(device.enter(Stream::exchange)), work_(device, Stream::exchange) {}

 private:
  const std::unique_ptr<StreamScope> scope_;
  const WorkSpan work_;  // ends first
};

}  // namespace

std::unique_ptr<StreamScope> PeerState::enter_device() const {
  return config_.device ? std::make_unique<MeasuredScope>(*config_.device) : nullptr;
}

at::Device PeerState::device() const {
  return config_.device ? config_.device->device() : at::Device(at::kCPU);
}

// Between devices the copy is this rank's: the owner of `t` continues meanwhile.
FrozenTensor PeerState::placed(const FrozenTensor& t) const {
  GRAPEVINE_CHECK(!stream_ || current_stream(device()) == *stream_, "rank ", config_.rank,
                  ": a handler has not entered its device");
  if (!t.defined() || t.device().is_cpu() || device().is_cpu()) return t.on(device());
  if (t.device() == device()) return t;
  at::Tensor here = at::empty(t.sizes(), at::TensorOptions(t.dtype()).device(device()));
  config_.device->copy(Stream::exchange, here, t.read_on(device()));
  return FrozenTensor::freeze(std::move(here));
}

// Every model enters its role through here or own_copy(): the first one, one of a checkpoint, that
// of another rank, and the mean of all. Those that follow lie in memory of the same kind.
FrozenTensor PeerState::own_model(FrozenTensor x) const {
  FrozenTensor here = placed(x);
  x = {};  // a handle on a vector that is taken over would make it a copy
  return config_.model_memory ? config_.model_memory->adopt(std::move(here)) : here;
}

FrozenTensor PeerState::own_copy(const at::Tensor& x) const {
  return config_.model_memory ? config_.model_memory->copy_of(x) : placed(FrozenTensor::copy_of(x));
}

void PeerState::place(Envelope& envelope) const {
  const auto place = [this, on_host = device().is_cpu()](FrozenTensor& t) {
    if (!on_host || (t.defined() && !t.device().is_cpu())) t = placed(t);
  };
  each_model_vector(envelope.payload, place);
  each_packed_on_device(envelope.payload, place);
}

void PeerState::hand_over(Envelope envelope) {
  if (config_.outgoing && !config_.transport->by_reference(envelope.from, envelope.to))
    self_->send(config_.outgoing, std::move(envelope));
  else
    config_.transport->send(std::move(envelope));
}

}  // namespace grapevine
