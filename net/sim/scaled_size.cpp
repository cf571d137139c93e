#include "net/sim/scaled_size.hpp"

#include <cmath>

#include "messages/codec.hpp"

namespace grapevine {
namespace {

// Bytes of the tensors that are as long as the model, or a part of it.
struct ModelBytes {
  std::uint64_t operator()(const Share& m) const { return m.x.nbytes(); }
  // Whole numbers are counts of ranks and samples (algorithms/collectives/partial_all_reduce.hpp).
  std::uint64_t operator()(const Chunk& m) const {
    return m.data.defined() && m.data.dtype() == at::kLong ? 0 : m.data.nbytes();
  }
  std::uint64_t operator()(const Swap& m) const { return m.x.nbytes(); }
  std::uint64_t operator()(const Grant& m) const { return m.theta.nbytes(); }
  std::uint64_t operator()(const Commit& m) const { return m.update.nbytes(); }
  std::uint64_t operator()(const Receipt& m) const { return m.value.nbytes(); }
  std::uint64_t operator()(const Parameters& m) const { return m.x.nbytes(); }
  std::uint64_t operator()(const StateChunk& m) const { return m.data.nbytes(); }
  std::uint64_t operator()(const PackedChunk& m) const {
    return m.data.indices.nbytes() + m.data.values.nbytes() + m.data.scales.nbytes();
  }
  std::uint64_t operator()(const Extension& m) const {
    std::uint64_t bytes = 0;
    for (const FrozenTensor& tensor : m.tensors) bytes += tensor.nbytes();
    return bytes;
  }
  template <class Other>  // Leave, Marker, ProgressUpdate, Activate, Ask, StateReceived
  std::uint64_t operator()(const Other&) const {
    return 0;
  }
};

}  // namespace

std::uint64_t scaled_wire_size(const Envelope& envelope, double scale) {
  const std::uint64_t bytes = wire_size(envelope);
  if (scale == 1) return bytes;
  const std::uint64_t of_model = std::visit(ModelBytes{}, envelope.payload);
  return bytes - of_model +
         static_cast<std::uint64_t>(std::llround(static_cast<double>(of_model) * scale));
}

}  // namespace grapevine
