#include <algorithm>
#include <string>

#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace grapevine {
namespace {

// read_toml_file() refuses more in a line.
constexpr int kMostDotsInText = 1000;

void check_written(const Wiring& wiring) {
  const std::string text = wiring.to_toml();
  const auto again = Wiring::parse_toml(text, "again");
  GRAPEVINE_CHECK(again.ok(), "a wiring that was written is refused: ", again.error().message);
  GRAPEVINE_CHECK(again->keys() == wiring.keys(), "a wiring reads back as another: ", text);
}

// As `wiring check --ranks 8` does. A topology may name a file, which is not part of the input.
void check_eight_ranks(const Plan& plan, const std::string& text) {
  if (text.find("file:") != std::string::npos) return;
  OptimizerConfig optimizer;
  optimizer.momentum = plan.role->uses_momentum(plan) ? 0.9 : 0;
  const auto parts = make_parts(plan, Horizon{1000, 100}, *LrSchedule::make({}), optimizer, 8);
  if (!parts) check_one_line(parts.error());
}

}  // namespace

void fuzz_one_wiring(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (std::count(text.begin(), text.end(), '.') > kMostDotsInText) return;
  const auto wiring = Wiring::parse_toml(text, "file");
  if (!wiring) return check_one_line(wiring.error());
  const auto resolved = resolve_keys(*wiring);
  if (!resolved) return check_one_line(resolved.error());
  check_written(*wiring);
  wiring_tables(resolved->keys);
  check_eight_ranks(resolved->plan, text);
  static const Wiring preset = find_preset("sgp")->wiring;
  if (const auto merged = resolve_keys(on_top_of(preset, *wiring)); !merged)
    check_one_line(merged.error());
}

}  // namespace grapevine
