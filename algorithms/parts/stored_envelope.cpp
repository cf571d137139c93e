#include "algorithms/parts/stored_envelope.hpp"

namespace grapevine {

StateDict store_share(const Envelope& envelope) {
  const Share& share = std::get<Share>(envelope.payload);
  StateDict state;
  state.put("from", static_cast<std::int64_t>(envelope.from));
  state.put("round", share.round);
  state.put("w", share.w);
  state.put("x", share.x.read());
  state.put("step", envelope.stamp.step);
  state.put("version", envelope.stamp.version);
  return state;
}

Expected<Envelope> load_share(const StateDict& state, Rank to) {
  const auto from = state.integer("from"), round = state.integer("round"),
             step = state.integer("step"), version = state.integer("version");
  for (const auto* field : {&from, &round, &step, &version})
    if (!*field) return field->error();
  const auto w = state.number("w");
  if (!w) return w.error();
  auto x = state.tensor("x");
  if (!x) return x.error();
  Envelope envelope;
  envelope.from = static_cast<Rank>(*from);
  envelope.to = to;
  envelope.stamp.origin = envelope.from;
  envelope.stamp.step = *step;
  envelope.stamp.version = *version;
  envelope.payload = Share{*round, *w, FrozenTensor::copy_of(*x)};
  return envelope;
}

}  // namespace grapevine
