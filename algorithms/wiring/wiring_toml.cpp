// The TOML text of a wiring.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>
#include <utility>

#include <toml++/toml.h>

#include "algorithms/wiring/wiring.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/toml_problem.hpp"

namespace grapevine {
namespace {

std::string toml_value(const std::string& value) {
  const auto is_digits = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  // As TOML has them: no zero in front, 64 bits.
  const auto is_whole = [&](const std::string& text) {
    return is_digits(text) && (text == "0" || text.front() != '0') && text.size() <= 18;
  };
  const std::size_t point = value.find('.');
  const bool is_fraction = point != std::string::npos && is_whole(value.substr(0, point)) &&
                           is_digits(value.substr(point + 1));
  if (value == "true" || value == "false" || is_whole(value) || is_fraction) return value;
  std::ostringstream out;
  out << toml::value<std::string>(value);
  return out.str();
}

Expected<std::string> text_of(const toml::node& value) {
  if (const auto* string = value.as_string()) return string->get();
  if (const auto* integer = value.as_integer()) return std::to_string(integer->get());
  if (const auto* boolean = value.as_boolean())
    return std::string(boolean->get() ? "true" : "false");
  const auto* real = value.as_floating_point();
  if (real == nullptr) return bad_input("is neither text, a number nor true/false");
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, real->get()).ptr);
}

// Sets the keys of a table but `level`, where that is [wiring] itself; `prefix`: of its level.
Expected<void> set_keys(Wiring& wiring, const toml::table& table, const std::string& prefix,
                        const std::string& where, bool may_have_levels) {
  for (const auto& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    if (may_have_levels && name == "level") continue;
    const std::string place = where + ":" + std::to_string(value.source().begin.line);
    const auto text = text_of(value);
    if (!text && !has_control_characters(name))
      return bad_input(place + ": wiring." + name + " " + text.error().message);
    if (auto set = wiring.set(name, text ? *text : ""); !set)
      return Error{set.error().code, place + ": " + set.error().message};
  }
  return {};
}

// [[wiring.level]]: the last one is the outermost, whose keys need no prefix, where it has no
// ranks.
Expected<void> set_levels(Wiring& wiring, const toml::node& node, bool has_other_keys,
                          const std::string& where) {
  const auto* levels = node.as_array();
  if (levels == nullptr || !levels->is_array_of_tables())
    return bad_input(where + ": wiring.level: give each level a table [[wiring.level]]");
  for (std::size_t i = 0; i < levels->size(); ++i) {
    const toml::table& level = *levels->get(i)->as_table();
    const bool outermost = i + 1 == levels->size() && !level.contains(kGroupRanksKey);
    if (outermost && has_other_keys)
      return bad_input(where + ":" + std::to_string(level.source().begin.line) +
                       ": the last [[wiring.level]] is the outermost, and [wiring] has keys as "
                       "well: give them in one of the two");
    const std::string place = where + ":" + std::to_string(level.source().begin.line);
    if (level.empty())
      return bad_input(place + ": a [[wiring.level]] without keys: give its exchange");
    if (!level.contains(kGroupRanksKey) && (!outermost || i == 0))
      return bad_input(place +
                       ": a [[wiring.level]] has no `ranks`, which the last of several alone may "
                       "leave out: give the ranks in a group");
    const std::string prefix = outermost ? "" : "level." + std::to_string(i + 1) + ".";
    if (auto set = set_keys(wiring, level, prefix, where, false); !set) return set;
  }
  return {};
}

// In the order of the levels and of the key table.
std::vector<ResolvedKey> given_keys(const Wiring& wiring) {
  const std::vector<KeyInfo>& order = wiring_keys();
  const auto place_of = [&order](const std::string& name) {
    const LevelKey key = level_key(name);
    const std::int32_t level = key.level > 0 ? key.level : kMostLevels + 1;
    const auto place = std::find_if(order.begin(), order.end(),
                                    [&key](const KeyInfo& info) { return info.key == key.key; });
    // The number of ranks is no key of the table, and the first of its level.
    return std::pair(level, place == order.end() ? -1 : place - order.begin());
  };
  std::vector<ResolvedKey> keys;
  for (const auto& [name, value] : wiring.keys()) keys.push_back({name, value, true, ""});
  std::sort(keys.begin(), keys.end(), [&](const ResolvedKey& one, const ResolvedKey& other) {
    return place_of(one.key) < place_of(other.key);
  });
  return keys;
}

}  // namespace

Expected<Wiring> Wiring::parse_toml(const std::string& text, const std::string& where) {
  Wiring wiring;
  try {
    const toml::table document = toml::parse(text);
    const toml::node* node = document.get("wiring");
    if (node == nullptr) return wiring;
    const toml::table* table = node->as_table();
    if (table == nullptr) return bad_input(where + ": 'wiring' is not a table");
    const toml::node* levels = table->get("level");
    if (auto set = set_keys(wiring, *table, "", where, true); !set) return set.error();
    if (levels != nullptr)
      if (auto set = set_levels(wiring, *levels, table->size() > 1, where); !set)
        return set.error();
  } catch (const toml::parse_error& error) {
    return bad_input(toml_problem(where, text, error.source().begin.line, error.description()));
  }
  return wiring;
}

std::vector<WiringTable> wiring_tables(const std::vector<ResolvedKey>& keys) {
  const bool nested = std::any_of(keys.begin(), keys.end(), [](const ResolvedKey& key) {
    return level_key(key.key).level > 0;
  });
  std::vector<WiringTable> tables;
  std::int32_t last = -1;
  for (const ResolvedKey& key : keys) {
    const LevelKey of_level = level_key(key.key);
    if (tables.empty() || of_level.level != last)
      tables.push_back({nested ? "[[wiring.level]]" : "[wiring]", {}});
    last = of_level.level;
    tables.back().keys.push_back(key);
    tables.back().keys.back().key = of_level.key;
  }
  if (tables.empty()) tables.push_back({"[wiring]", {}});
  return tables;
}

std::string Wiring::to_toml() const {
  std::string text;
  for (const WiringTable& table : wiring_tables(given_keys(*this))) {
    text += (text.empty() ? "" : "\n") + table.header + "\n";
    for (const ResolvedKey& key : table.keys) text += toml_line(key.key, key.value) + "\n";
  }
  return text;
}

std::string toml_line(const std::string& key, const std::string& value) {
  return key + " = " + toml_value(value);
}

}  // namespace grapevine
