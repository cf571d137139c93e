#include "messages/payload_place.hpp"

namespace grapevine {
namespace {

PayloadPlace place(const Share& m) { return {PayloadKind::share, m.round}; }
PayloadPlace place(const Leave& m) { return {PayloadKind::leave, m.last_round}; }
PayloadPlace place(const Chunk& m) { return {PayloadKind::chunk, m.operation, m.round, m.index}; }
PayloadPlace place(const Marker& m) { return {PayloadKind::marker, m.id}; }
PayloadPlace place(const Swap& m) { return {PayloadKind::swap, m.exchange}; }
PayloadPlace place(const ProgressUpdate&) { return {PayloadKind::progress_update}; }
PayloadPlace place(const Activate& m) { return {PayloadKind::activate, m.operation}; }
PayloadPlace place(const PackedChunk& m) {
  return {PayloadKind::packed_chunk, m.operation, m.round, m.sender};
}
PayloadPlace place(const Ask& m) { return {PayloadKind::ask, m.exchange}; }
PayloadPlace place(const Grant& m) { return {PayloadKind::grant, m.exchange}; }
PayloadPlace place(const Commit& m) { return {PayloadKind::commit, m.exchange}; }
PayloadPlace place(const Receipt& m) { return {PayloadKind::receipt, m.exchange}; }
PayloadPlace place(const Parameters& m) { return {PayloadKind::parameters, m.step}; }
PayloadPlace place(const Extension&) { return {PayloadKind::extension}; }
PayloadPlace place(const StateChunk& m) { return {PayloadKind::state_chunk, m.transfer}; }
PayloadPlace place(const StateReceived& m) { return {PayloadKind::state_received, m.transfer}; }

}  // namespace

PayloadPlace place_of(const Payload& payload) {
  return std::visit([](const auto& message) { return place(message); }, payload);
}

}  // namespace grapevine
