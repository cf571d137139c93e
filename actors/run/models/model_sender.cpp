#include "actors/run/models/model_sender.hpp"

#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/run/models/model_transfer.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

std::int64_t elements(const EpochModel& model) { return model.z.numel() + model.buffers.numel(); }

// Those of `tensor`, which lies at `place` in the model, that are in [begin, begin + count).
void copy_range(const FrozenTensor& tensor, std::int64_t place, const SendModel& range,
                float* out) {
  const std::int64_t from = std::max(range.begin, place);
  const std::int64_t to = std::min(range.begin + range.count, place + tensor.numel());
  if (from < to)
    std::memcpy(out + (from - range.begin), tensor.data<float>() + (from - place),
                sizeof(float) * static_cast<std::size_t>(to - from));
}

// [4 * count] bytes.
FrozenTensor bytes_of(const EpochModel& model, const SendModel& range) {
  at::Tensor bytes = at::empty({kModelElement * range.count}, at::kByte);
  auto* out = reinterpret_cast<float*>(bytes.data_ptr<std::uint8_t>());
  copy_range(model.z, 0, range, out);
  copy_range(model.buffers, model.z.numel(), range, out);
  return FrozenTensor::freeze(std::move(bytes));
}

bool fits(const SendModel& range, std::int64_t elements) {
  return range.begin >= 0 && range.count > 0 && range.count <= kMostModelPart &&
         range.begin <= elements - range.count && range.transfer >= kFirstModelTransfer;
}

}  // namespace

// Models are kept in the host's memory and take none of a device. If a copy fails, the process that
// asks for the model misses it.
void ModelSenderState::on_keep(EpochModel& model) {
  auto& kept = kept_[model.rank];
  const Epoch epoch = model.epoch;
  try {
    model.z = model.z.on_host();
    model.buffers = model.buffers.on_host();
    kept[epoch] = std::move(model);
  } catch (...) {
    spdlog::warn("rank {}: its model of epoch {} is not kept for validation: {}", model.rank,
                 epoch + 1, exception_line(std::current_exception()));
  }
  const auto oldest = kept.lower_bound(0);
  if (std::distance(oldest, kept.end()) > static_cast<std::ptrdiff_t>(kMostEpochs))
    kept.erase(oldest);
}

ModelSent ModelSenderState::on_send(const SendModel& order) {
  try {
    return {send(order)};
  } catch (...) {  // for example no memory for the part
    return {exception_line(std::current_exception())};
  }
}

std::string ModelSenderState::send(const SendModel& order) {
  const auto of_rank = kept_.find(order.rank);
  const auto* model = of_rank == kept_.end() || of_rank->second.count(order.epoch) == 0
                          ? nullptr
                          : &of_rank->second.at(order.epoch);
  if (model == nullptr)
    return fmt::format("rank {} keeps its {} newest models, and not this one", order.rank,
                       kMostEpochs);
  const std::int64_t size = elements(*model);
  const bool to_rank = order.to >= 0 && order.to < config_.transport->world_size();
  if (!fits(order, size) || !to_rank)
    return fmt::format("rank {} has no numbers {} to {} of its model", order.rank, order.begin,
                       order.begin + order.count);
  Envelope envelope;
  envelope.from = order.rank;
  envelope.to = order.to;
  envelope.stamp.origin = order.rank;
  envelope.payload = StateChunk{order.transfer, kModelElement * order.begin, kModelElement * size,
                                bytes_of(*model, order)};
  config_.transport->send(std::move(envelope));
  return "";
}

void ModelSenderState::on_release(const ReleaseModel& model) {
  const auto of_rank = kept_.find(model.rank);
  if (of_rank != kept_.end()) of_rank->second.erase(model.epoch);
}

ModelSenderActor::behavior_type model_sender(
    ModelSenderActor::stateful_pointer<ModelSenderState> self, ModelSenderConfig config) {
  ModelSenderState& state = self->state;
  state.init(std::move(config));
  ignore_unexpected_messages(*self);
  return {[&state](EpochModel& model) { state.on_keep(model); },
          [&state](const SendModel& order) { return state.on_send(order); },
          [&state](const ReleaseModel& model) { state.on_release(model); }};
}

}  // namespace grapevine
