// A message of a run that does not decode, for tests.
#pragma once
#include <cstdint>
#include <string>

#include "actors/double_bits.hpp"
#include "actors/protocol.hpp"

namespace grapevine {

// A RankReport whose measures are no state. The sender registers it by that name.
struct LyingMeasures {
  std::uint32_t entries = 0;
  std::uint8_t kind = 0;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LyingMeasures& m) {
  RankReport report;
  DoubleListBits seconds(report.step_seconds);
  std::string name = "x";
  return f(caf::meta::type_name("grapevine::RankReport"), report.rank, report.step, report.offer,
           report.ledger, seconds.bits, m.entries, name, m.kind);
}

}  // namespace grapevine
