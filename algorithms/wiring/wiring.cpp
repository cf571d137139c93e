#include "algorithms/wiring/wiring.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "algorithms/wiring/role_type.hpp"
#include "messages/ids.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const KeyInfo& info : wiring_keys()) names.push_back(info.key);
  return names;
}

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

const RoleType* role_named(const std::string& name) {
  for (const RoleType* role : role_types())
    if (role->name == name) return role;
  return nullptr;
}

// "node": as many as the launcher says; 0 until then.
Expected<std::int32_t> ranks_per_node(const std::string& text) {
  std::int32_t ranks = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ranks);
  if (text == "node" || (error == std::errc() && stop == end && ranks >= 1)) return ranks;
  return bad_input("'" + text + "' is neither a whole number, at least 1, nor 'node'");
}

// The keys of all roles; of the one that the wiring names where it is read.
void visit_keys(KeyReader& keys, Plan& plan) {
  std::vector<std::string> names;
  for (const RoleType* role : role_types()) names.push_back(role->name);
  const std::string name =
      keys.name("exchange", "aggregate", names, "the role: the pattern in which ranks exchange");
  for (const RoleType* role : role_types())
    keys.where("exchange", role->name, [&] { role->read(keys, plan); });
  plan.role = role_named(name);
  plan.hierarchy = keys.parsed<std::int32_t>(
      "hierarchy", "1", "a whole number, or node: the number that the launcher gives",
      &ranks_per_node,
      "ranks per node: they all-reduce gradients, one of them exchanges with other nodes");
}

}  // namespace

const std::vector<KeyInfo>& wiring_keys() {
  static const std::vector<KeyInfo> keys = [] {
    KeyReader lister;
    Plan plan;
    visit_keys(lister, plan);
    return lister.listed();
  }();
  return keys;
}

Expected<void> Wiring::set(const std::string& key, const std::string& value) {
  const std::vector<std::string> valid = key_names();
  if (std::find(valid.begin(), valid.end(), key) == valid.end())
    return unknown_name("wiring key", key, valid);
  if (value.empty()) return bad_input("wiring." + key + " is empty: give a value");
  keys_[key] = value;
  return {};
}

Expected<Wiring> Wiring::parse_toml(const std::string& text, const std::string& where) {
  Wiring wiring;
  try {
    const toml::table document = toml::parse(text);
    const toml::node* node = document.get("wiring");
    if (node == nullptr) return wiring;
    if (!node->is_table()) return bad_input(where + ": 'wiring' is not a table");
    for (const auto& [key, value] : *node->as_table()) {
      const std::string place = where + ":" + std::to_string(value.source().begin.line);
      std::string written;
      if (const auto* string = value.as_string()) {
        written = string->get();
      } else if (const auto* integer = value.as_integer()) {
        written = std::to_string(integer->get());
      } else if (const auto* real = value.as_floating_point()) {
        char buffer[32];
        const auto end = std::to_chars(buffer, buffer + sizeof buffer, real->get()).ptr;
        written.assign(buffer, end);
      } else if (const auto* boolean = value.as_boolean()) {
        written = boolean->get() ? "true" : "false";
      } else {
        return bad_input(place + ": wiring." + std::string(key.str()) +
                         " is neither text, a number nor true/false");
      }
      if (auto set = wiring.set(std::string(key.str()), written); !set)
        return Error{set.error().code, place + ": " + set.error().message};
    }
  } catch (const toml::parse_error& error) {
    std::ostringstream message;
    message << where << ":" << error.source().begin.line << ":" << error.source().begin.column
            << ": " << error.description();
    return bad_input(message.str());
  }
  return wiring;
}

std::string Wiring::to_toml() const {
  std::string text = "[wiring]\n";
  for (const KeyInfo& info : wiring_keys()) {
    const auto it = keys_.find(info.key);
    if (it != keys_.end()) text += toml_line(info.key, it->second) + "\n";
  }
  return text;
}

std::string toml_line(const std::string& key, const std::string& value) {
  return key + " = " + toml_value(value);
}

Expected<Resolved> resolve_keys(const Wiring& wiring) {
  KeyReader reader(wiring.keys());
  Resolved resolved;
  visit_keys(reader, resolved.plan);
  if (reader.error()) return *reader.error();
  resolved.keys = reader.resolved();
  for (const KeyInfo& key : wiring_keys()) {
    const auto given = wiring.keys().find(key.key);
    const auto counts = [&](const ResolvedKey& entry) { return entry.key == key.key; };
    if (given != wiring.keys().end() &&
        std::none_of(resolved.keys.begin(), resolved.keys.end(), counts))
      return key_without_effect(key, given->second, resolved.keys);
  }
  return resolved;
}

Expected<Plan> resolve(const Wiring& wiring) {
  auto resolved = resolve_keys(wiring);
  if (!resolved) return resolved.error();
  return std::move(resolved->plan);
}

}  // namespace grapevine
