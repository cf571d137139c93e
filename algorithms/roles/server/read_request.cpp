#include "algorithms/roles/server/read_request.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// If members or rates have changed since the first request, exchanges may be due at other steps
// than before.
bool may_hold(const SharedParts& parts, std::int64_t gradients) {
  const std::int64_t most =
      parts.began_together() ? parts.exchanges.longest() : parts.horizon.steps;
  return gradients >= 1 && gradients <= most;
}

FrozenTensor unpacked(const PackedChunk& chunk, const SharedParts& parts,
                      const Compressor& compressor, std::int64_t d, at::Device device) {
  if (!may_hold(parts, chunk.round)) return {};
  at::Tensor update = at::zeros({d}, at::kFloat);
  if (!compressor.fold(update, chunk.data, 1)) return {};
  return FrozenTensor::freeze(update.to(device));
}

}  // namespace

ServiceRequest read_request(const Envelope& envelope, const SharedParts& parts,
                            const Compressor& compressor, std::int64_t d, at::Device device) {
  const Rank client = envelope.from;
  const bool packs = parts.plan.compression.enabled();
  ServiceRequest request;
  request.client = client;
  request.stamp = envelope.stamp;
  if (const auto* ask = std::get_if<Ask>(&envelope.payload)) {
    request.exchange = ask->exchange;
  } else if (const auto* commit = std::get_if<Commit>(&envelope.payload)) {
    GRAPEVINE_CHECK(!packs, "rank ", client, " sent a commit that is not compressed");
    GRAPEVINE_CHECK(commit->update.numel() == d, "rank ", client,
                    " sent an update of another size");
    GRAPEVINE_CHECK(may_hold(parts, commit->gradients), "rank ", client, " sent an update of ",
                    commit->gradients, " gradients, more than local_steps allow");
    request.exchange = commit->exchange;
    request.gradients = commit->gradients;
    request.update = commit->update;
  } else {
    const auto* chunk = std::get_if<PackedChunk>(&envelope.payload);
    GRAPEVINE_CHECK(chunk != nullptr, "rank ", client,
                    " sent a server neither a request nor a commit");
    GRAPEVINE_CHECK(packs, "rank ", client, " sent a commit that is compressed");
    request.exchange = chunk->operation;
    request.gradients = chunk->round;
    request.update = unpacked(*chunk, parts, compressor, d, device);
  }
  return request;
}

}  // namespace grapevine
