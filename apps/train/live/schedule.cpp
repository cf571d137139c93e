#include "apps/train/live/schedule.hpp"

#include <cmath>
#include <optional>

#include <toml++/toml.h>

#include "apps/console/verb_options.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/toml_problem.hpp"

namespace grapevine {
namespace {

constexpr char kTable[] = "change";
constexpr char kEpoch[] = "epoch";

std::string place_of(const std::string& path, const toml::node& node) {
  return path + ":" + std::to_string(node.source().begin.line);
}

std::optional<std::string> text_of(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* flag = value.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* real = value.as_floating_point()) return number_text(real->get());
  return std::nullopt;
}

// Dotted keys are tables within tables.
Expected<void> add_settings(LiveSettings& settings, const toml::table& table,
                            const std::string& prefix, const std::string& path) {
  for (const auto& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    if (name == kEpoch) continue;
    if (const toml::table* inner = value.as_table()) {
      if (auto added = add_settings(settings, *inner, name + ".", path); !added) return added;
      continue;
    }
    const auto text = text_of(value);
    if (!text || text->empty())
      return bad_input(place_of(path, value) + ": " + without_control_characters(name) +
                       ": expected text, a number or true/false");
    settings[name] = *text;
  }
  return {};
}

Expected<ScheduledChange> read_change(const toml::node& node, const std::string& path) {
  const toml::table* table = node.as_table();
  if (table == nullptr) return bad_input(place_of(path, node) + ": expected tables [[change]]");
  const toml::node* epoch = table->get(kEpoch);
  const auto number = epoch == nullptr ? std::nullopt : epoch->value<double>();
  if (!number || !std::isfinite(*number) || *number <= 0)
    return bad_input(place_of(path, node) + ": expected epoch = a number above 0");
  ScheduledChange change;
  change.epoch = *number;
  if (auto added = add_settings(change.changed, *table, "", path); !added) return added.error();
  change.changed = with_plain_numbers(std::move(change.changed));
  if (change.changed.empty())
    return bad_input(place_of(path, node) + ": a change without settings: name some beside epoch");
  return change;
}

Expected<std::vector<ScheduledChange>> read_changes(const toml::table& document,
                                                    const std::string& path) {
  for (const auto& [key, value] : document)
    if (key.str() != kTable)
      return bad_input(place_of(path, value) + ": '" +
                       without_control_characters(std::string(key.str())) +
                       "': expected tables [[change]]");
  const toml::node* node = document.get(kTable);
  const toml::array* tables = node == nullptr ? nullptr : node->as_array();
  if (tables == nullptr || tables->empty())
    return bad_input(path + ": expected tables [[change]], each with epoch and settings");
  std::vector<ScheduledChange> schedule;
  for (const toml::node& table : *tables) {
    auto change = read_change(table, path);
    if (!change) return change.error();
    if (!schedule.empty() && change->epoch <= schedule.back().epoch)
      return bad_input(place_of(path, table) + ": epoch " + number_text(change->epoch) +
                       " follows epoch " + number_text(schedule.back().epoch) +
                       ": write the changes in the order of their epochs");
    schedule.push_back(*std::move(change));
  }
  return schedule;
}

}  // namespace

Expected<std::vector<ScheduledChange>> read_schedule(const std::string& path) {
  const auto text = read_toml_file(path, "a TOML file of changes");
  if (!text) return text.error();
  try {
    return read_changes(toml::parse(*text), path);
  } catch (const toml::parse_error& error) {
    return bad_input(toml_problem(path, *text, error.source().begin.line, error.description()));
  }
}

}  // namespace grapevine
