#include "actors/run/control/live_settings.hpp"

#include <algorithm>
#include <cstdint>

#include "messages/text/number_text.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr char kWiringPrefix[] = "wiring.";

std::string plain_number(const std::string& text) {
  if (const auto whole = number_in<std::int64_t>(text)) return std::to_string(*whole);
  if (const auto number = finite_number_in(text)) return number_text(*number);
  return text;
}

bool is_wiring_key(const std::string& name) { return name.rfind(kWiringPrefix, 0) == 0; }

}  // namespace

const std::vector<std::string>& live_wiring_numbers() {
  static const std::vector<std::string> names = {"wiring.clip",   "wiring.density",
                                                 "wiring.grace",  "wiring.outer_lr",
                                                 "wiring.quorum", "wiring.staleness"};
  return names;
}

bool changes_wiring(const LiveSettings& changed) {
  const std::vector<std::string>& numbers = live_wiring_numbers();
  return std::any_of(changed.begin(), changed.end(), [&numbers](const auto& setting) {
    const std::string& name = setting.first;
    const bool is_number = std::find(numbers.begin(), numbers.end(), name) != numbers.end();
    return name == kAlgorithmSetting || (is_wiring_key(name) && !is_number);
  });
}

LiveSettings with_settings(LiveSettings settings, const LiveSettings& changed) {
  if (changed.count(kAlgorithmSetting) > 0)
    for (auto at = settings.begin(); at != settings.end();)
      at = is_wiring_key(at->first) ? settings.erase(at) : std::next(at);
  for (const auto& [name, value] : changed) settings[name] = value;
  return settings;
}

LiveSettings with_plain_numbers(LiveSettings settings) {
  for (auto& setting : settings) setting.second = plain_number(setting.second);
  return settings;
}

LiveSettings wiring_settings(const LiveSettings& settings) {
  LiveSettings of_wiring;
  for (const auto& [name, value] : settings)
    if (name == kAlgorithmSetting || is_wiring_key(name)) of_wiring[name] = value;
  return of_wiring;
}

std::string settings_text(const LiveSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings)
    text += (text.empty() ? "" : ", ") + name + " = " + value;
  return text;
}

}  // namespace grapevine
