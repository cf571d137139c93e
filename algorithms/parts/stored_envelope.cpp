#include "algorithms/parts/stored_envelope.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "messages/device/model_vectors.hpp"

namespace grapevine {

void share_fields(Archive& a, Envelope& envelope, Rank to) {
  Share share = a.loads() ? Share() : std::get<Share>(envelope.payload);
  a.whole("from", envelope.from);
  a.whole("round", share.round);
  a.number("w", share.w);
  a.needs("x");
  a.values("x", share.x);
  a.whole("step", envelope.stamp.step);
  a.whole("version", envelope.stamp.version);
  if (!a.loads()) return;
  envelope.to = to;
  envelope.stamp.origin = envelope.from;
  envelope.payload = std::move(share);
}

std::string stored_text(const Envelope& envelope) {
  Envelope host = envelope;
  const auto bring_down = [](FrozenTensor& t) { t = t.on_host(); };
  each_model_vector(host.payload, bring_down);
  each_packed_on_device(host.payload, bring_down);
  const std::vector<std::byte> bytes = encode(host);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Expected<Envelope> stored_envelope(const std::string& text, std::int32_t ranks) {
  CodecLimits limits;
  limits.world_size = ranks;
  return decode(reinterpret_cast<const std::byte*>(text.data()), text.size(), limits);
}

void envelope_fields(Archive& a, Envelope& envelope, std::int32_t ranks) {
  std::string bytes = a.loads() ? std::string() : stored_text(envelope);
  a.text("bytes", bytes);
  if (!a.loads() || !a.ok()) return;
  auto stored = stored_envelope(bytes, ranks);
  if (!stored)
    return a.fail(bad_input("entry 'bytes' of the saved state: " + stored.error().message));
  envelope = *std::move(stored);
  each_model_vector(envelope.payload, [&a](FrozenTensor& t) { a.to_device(t); });
}

}  // namespace grapevine
