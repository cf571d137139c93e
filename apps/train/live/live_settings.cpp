#include "apps/train/live/live_settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <variant>

#include "apps/console/verb_options.hpp"
#include "apps/train/options/option_traits.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr char kWiring[] = "wiring.";

// REQUIRES: an option that is a number.
double& live_number(TrainOptions& options, const std::string& name) {
  return options.*std::get<double TrainOptions::*>(traits_of(name).member);
}

// "wiring.level.1.pack" is one as "wiring.pack" is.
bool is_live_setting(std::string name) {
  const std::vector<std::string>& names = live_setting_names();
  if (name.rfind(kWiring, 0) == 0) {
    const LevelKey key = level_key(name.substr(std::string(kWiring).size()));
    if (key.level > 0 && key.key == kGroupRanksKey) return true;
    name = kWiring + key.key;
  }
  return std::find(names.begin(), names.end(), name) != names.end();
}

using KeyValues = std::map<std::string, std::string>;

// The job.toml of a run states each key, also those at their default. Such a key would contradict a
// setting with which it does not count.
void leave_out_defaults(TrainOptions& options) {
  const KeyValues whole = resolved_values(options);
  if (whole.empty()) return;
  for (const auto& [key, value] : KeyValues(options.wiring.keys())) {
    TrainOptions without = options;
    without.wiring = Wiring();
    for (const auto& [other, its] : options.wiring.keys())
      if (other != key && !without.wiring.set(other, its)) return;
    if (resolved_values(without) == whole) options.wiring = without.wiring;
  }
}

}  // namespace

const std::vector<std::string>& live_setting_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = options_with(OptionTraits::live);
    for (const KeyInfo& key : wiring_keys()) all.push_back(kWiring + key.key);
    return all;
  }();
  return names;
}

std::map<std::string, std::string> resolved_values(const Wiring& wiring) {
  KeyValues values;
  if (const auto resolved = resolve_keys(wiring))
    for (const ResolvedKey& key : resolved->keys) values[key.key] = key.value;
  return values;
}

std::map<std::string, std::string> resolved_values(const TrainOptions& options) {
  const auto wiring = effective_wiring(options);
  return wiring ? resolved_values(*wiring) : KeyValues();
}

Expected<void> apply_settings(TrainOptions& options, const LiveSettings& settings) {
  for (const auto& [name, value] : settings) {
    if (!is_live_setting(name))
      return unknown_name("setting of a running job", name, live_setting_names());
    if (name == kAlgorithmSetting) {
      // A preset begins anew: what was set before was of another one.
      options.algorithm = value;
      options.set.clear();
      options.wiring = Wiring();
      continue;
    }
    if (name.rfind(kWiring, 0) == 0) {
      leave_out_defaults(options);
      options.set.push_back(name + "=" + value);
      continue;
    }
    // Tensors without decay are listed at the start, where there is any decay.
    if (name == "weight-decay" && options.no_decay)
      return bad_input("weight-decay does not change in a run with --no-decay");
    std::string text = value;
    const std::string complaint = verb_options::complaint<double>(text);
    if (!complaint.empty()) return bad_input("--" + name + " " + complaint);
    const double number = std::strtod(text.c_str(), nullptr);
    live_number(options, name) = number;
    options.changed[name] = number_text(number);
  }
  return {};
}

}  // namespace grapevine
