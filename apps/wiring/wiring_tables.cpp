#include "apps/wiring/wiring_tables.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

// Where a key counts: "exchange: gossip, bilateral"; empty where it always does.
std::string places_of(const KeyInfo& key) {
  std::vector<std::pair<std::string, std::vector<std::string>>> conditions;
  for (const auto& place : key.places)
    for (const KeyCondition& condition : place) {
      auto entry = std::find_if(conditions.begin(), conditions.end(),
                                [&](const auto& known) { return known.first == condition.first; });
      if (entry == conditions.end()) entry = conditions.insert(entry, {condition.first, {}});
      std::vector<std::string>& values = entry->second;
      if (std::find(values.begin(), values.end(), condition.second) == values.end())
        values.push_back(condition.second);
    }
  std::vector<std::string> texts;
  for (const auto& [name, values] : conditions)
    if (name != "exchange" || values.size() < role_types().size())
      texts.push_back(fmt::format("{}: {}", name, fmt::join(values, ", ")));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string markdown_cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

void print_keys_as_markdown(std::ostream& out) {
  out << "| key | values | default | meaning | counts where |\n|---|---|---|---|---|\n";
  for (const KeyInfo& key : wiring_keys()) {
    const std::string fallback = key.fallback.empty() ? "" : "`" + key.fallback + "`";
    out << fmt::format("| `{}` | {} | {} | {} | {} |\n", key.key, markdown_cell(key.values),
                       fallback, markdown_cell(key.explanation), places_of(key));
  }
}

void print_keys_as_json(std::ostream& out) {
  auto all = ordered_json::array();
  for (const KeyInfo& key : wiring_keys())
    all.push_back({{"key", key.key},
                   {"values", key.values},
                   {"default", key.fallback},
                   {"explanation", key.explanation},
                   {"counts_where", places_of(key)}});
  out << all.dump() << '\n';
}

void print_presets_as_markdown(std::ostream& out) {
  out << "| preset | method | keys it sets |\n|---|---|---|\n";
  for (const Preset& preset : presets()) {
    std::vector<std::string> keys;
    for (const KeyInfo& key : wiring_keys()) {
      const auto given = preset.wiring.keys().find(key.key);
      if (given != preset.wiring.keys().end())
        keys.push_back("`" + key.key + " = " + given->second + "`");
    }
    out << fmt::format("| `{}` | {}: {} | {} |\n", preset.name, preset.title, preset.paper,
                       fmt::join(keys, ", "));
  }
}

void print_keys_as_text(std::ostream& out) {
  for (const KeyInfo& key : wiring_keys()) {
    const std::string places = places_of(key);
    out << key.key << " = " << key.values
        << (key.fallback.empty() ? "" : ", default " + key.fallback) << "\n    " << key.explanation
        << (places.empty() ? "" : "\n    counts with " + places) << '\n';
  }
}

void print_presets_as_json(std::ostream& out) {
  auto all = ordered_json::array();
  for (const Preset& preset : presets())
    all.push_back({{"name", preset.name},
                   {"title", preset.title},
                   {"paper", preset.paper},
                   {"wiring", preset.wiring.keys()}});
  out << all.dump() << '\n';
}

void print_presets_as_text(std::ostream& out) {
  std::size_t name_width = 0, title_width = 0;
  for (const Preset& preset : presets()) {
    name_width = std::max(name_width, preset.name.size());
    title_width = std::max(title_width, preset.title.size());
  }
  for (const Preset& preset : presets())
    out << fmt::format("{:<{}}  {:<{}}  {}\n", preset.name, name_width, preset.title, title_width,
                       preset.paper);
}

}  // namespace

void print_keys(TableFormat format, std::ostream& out) {
  if (format == TableFormat::text) return print_keys_as_text(out);
  format == TableFormat::json ? print_keys_as_json(out) : print_keys_as_markdown(out);
}

void print_presets(TableFormat format, std::ostream& out) {
  if (format == TableFormat::text) return print_presets_as_text(out);
  format == TableFormat::json ? print_presets_as_json(out) : print_presets_as_markdown(out);
}

}  // namespace grapevine
