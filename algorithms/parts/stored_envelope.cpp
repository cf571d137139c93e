#include "algorithms/parts/stored_envelope.hpp"

#include <utility>

namespace grapevine {

void share_fields(Archive& a, Envelope& envelope, Rank to) {
  Share share = a.loads() ? Share() : std::get<Share>(envelope.payload);
  a.whole("from", envelope.from);
  a.whole("round", share.round);
  a.number("w", share.w);
  a.needs("x");
  a.tensor("x", share.x);
  a.whole("step", envelope.stamp.step);
  a.whole("version", envelope.stamp.version);
  if (!a.loads()) return;
  envelope.to = to;
  envelope.stamp.origin = envelope.from;
  envelope.payload = std::move(share);
}

}  // namespace grapevine
