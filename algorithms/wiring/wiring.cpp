#include "algorithms/wiring/wiring.hpp"

#include <algorithm>
#include <charconv>

#include "algorithms/wiring/role_type.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/names.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

bool is_key(const LevelKey& name) {
  if (name.level > 0 && name.key == kGroupRanksKey) return true;
  const std::vector<KeyInfo>& keys = wiring_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&name](const KeyInfo& info) { return info.key == name.key; });
}

std::vector<std::string> key_names(bool of_level) {
  std::vector<std::string> names;
  for (const KeyInfo& info : wiring_keys()) names.push_back(info.key);
  if (of_level) names.emplace_back(kGroupRanksKey);
  return names;
}

const RoleType* role_named(const std::string& name) {
  for (const RoleType* role : role_types())
    if (role->name == name) return role;
  return nullptr;
}

// "node": as many as the launcher says; 0 until then.
Expected<std::int32_t> ranks_per_node(const std::string& text) {
  if (text == "node") return 0;
  if (const auto ranks = number_in<std::int32_t>(text); ranks && *ranks >= 1) return *ranks;
  return bad_input("'" + text + "' is neither a whole number, at least 1, nor 'node'");
}

// The keys of all roles; of the one that the wiring names where it is read.
void visit_role(KeyReader& keys, Plan& plan) {
  std::vector<std::string> names;
  for (const RoleType* role : role_types()) names.push_back(role->name);
  const std::string name =
      keys.name("exchange", "aggregate", names, "the role: the pattern in which ranks exchange");
  for (const RoleType* role : role_types())
    keys.where("exchange", role->name, [&] { role->read(keys, plan); });
  plan.role = role_named(name);
}

void visit_keys(KeyReader& keys, Plan& plan) {
  visit_role(keys, plan);
  plan.hierarchy = keys.parsed<std::int32_t>(
      "hierarchy", "1", "a whole number, or node: the number that the launcher gives",
      &ranks_per_node,
      "ranks per node: they all-reduce gradients, one of them exchanges with other nodes");
}

// By level, the outermost last; names without the prefix of the level.
using KeysByLevel = std::map<std::int32_t, std::map<std::string, std::string>>;

constexpr std::int32_t kOutermost = kMostLevels + 1;

KeysByLevel by_level(const std::map<std::string, std::string>& keys) {
  KeysByLevel levels = {{kOutermost, {}}};
  for (const auto& [name, value] : keys) {
    const LevelKey key = level_key(name);
    levels[key.level > 0 ? key.level : kOutermost][key.key] = value;
  }
  return levels;
}

std::string prefix_of(std::int32_t level) {
  return level == kOutermost ? "" : "level." + std::to_string(level) + ".";
}

// "wiring.pack = …" as "wiring.level.2.pack = …".
Error in_level(Error error, std::int32_t level) {
  constexpr char kBegin[] = "wiring.";
  const std::size_t at = error.message.find(kBegin);
  if (at != std::string::npos) error.message.insert(at + sizeof kBegin - 1, prefix_of(level));
  return error;
}

struct ReadLevel {
  Plan plan;
  std::int32_t ranks = 0;  // of each group; 0: not known, or all
  std::vector<ResolvedKey> keys;
  std::map<std::string, std::string> pace;  // local_steps and qsr, as written
  bool has_pace = false;                    // one of them was given
};

bool counts(const KeyReader& reader, const std::string& key) {
  const auto& resolved = reader.resolved();
  return std::any_of(resolved.begin(), resolved.end(),
                     [&key](const ResolvedKey& entry) { return entry.key == key; });
}

Expected<void> check_effect(const KeyReader& reader,
                            const std::map<std::string, std::string>& given) {
  for (const KeyInfo& key : wiring_keys()) {
    const auto own = given.find(key.key);
    if (own != given.end() && !counts(reader, key.key))
      return key_without_effect(key, own->second, reader.resolved());
  }
  return {};
}

// A group of an inner level consists of whole groups of the level inside it, of `inside` ranks.
std::int32_t read_group_ranks(KeyReader& keys, std::int32_t inside) {
  if (!keys.has(kGroupRanksKey))
    keys.fail(
        bad_input("wiring.ranks is missing: give the number of ranks in a group of this level, or "
                  "'node'; the "
                  "keys of the outermost level have no number"));
  const auto ranks = keys.parsed<std::int32_t>(
      kGroupRanksKey, "1", "a whole number, or node: the number that the launcher gives",
      &ranks_per_node, "ranks in a group of this level");
  if (ranks % std::max(1, inside) != 0)
    keys.fail(bad_input("wiring.ranks = " + std::to_string(ranks) + " is no multiple of the " +
                        std::to_string(inside) +
                        " ranks of the level inside, whose groups it joins: choose a multiple"));
  return ranks;
}

// What does not fit a level with others inside or around it.
void check_level(KeyReader& keys, const Plan& plan, bool is_innermost, bool is_outermost) {
  const std::string role = "wiring.exchange = '" + plan.role->name + "' does not fit a level ";
  if (!is_outermost && !plan.role->synchronous(plan))
    keys.fail(bad_input(role +
                        "inside another as it is: its ranks would end a period with exchanges "
                        "outstanding, choose parts whose ranks wait for each exchange"));
  if (is_innermost) return;
  if (!plan.role->plans_each_rank)
    keys.fail(bad_input(role +
                        "around another: its fast ranks take steps over from slow ones, and a "
                        "period has a set number, choose another role, or wiring.hierarchy"));
  if (plan.role->drops_gradients(plan))
    keys.fail(bad_input(role +
                        "around another as it is: it may drop a period, whose gradients have been "
                        "committed inside, choose another rule, or wiring.hierarchy"));
  const std::string why =
      "a level around another: the momentum is the optimizer's, which steps in level 1, choose it "
      "there";
  keys.only_where("momentum_correction", !plan.compression.momentum_correction, why);
  keys.only_where("quasi_global", plan.local.quasi_global == 0, why);
}

Expected<ReadLevel> read_level(const std::map<std::string, std::string>& given, std::int32_t level,
                               std::int32_t ranks_inside, bool is_innermost) {
  KeyReader reader(given);
  ReadLevel read;
  const bool is_outermost = level == kOutermost;
  if (!is_outermost) read.ranks = read_group_ranks(reader, ranks_inside);
  const bool is_alone = is_innermost && is_outermost;
  is_alone ? visit_keys(reader, read.plan) : visit_role(reader, read.plan);
  if (!reader.error()) check_level(reader, read.plan, is_innermost, is_outermost);
  if (reader.error()) return *reader.error();
  if (auto fits = check_effect(reader, given); !fits) return fits.error();
  read.keys = reader.resolved();
  for (const auto& [key, fallback] : {std::pair("local_steps", "1"), std::pair("qsr", "0")}) {
    const std::string value = reader.value_of(key);
    read.pace[key] = value.empty() ? fallback : value;
    read.has_pace = read.has_pace || reader.has(key);
  }
  return read;
}

// Where a level does not say how often its groups exchange, they do whenever the ranks inside have.
void exchange_as_often_as(const ReadLevel& inside, ReadLevel& level) {
  if (level.has_pace) return;
  level.plan.local.steps = inside.plan.local.steps;
  level.pace = inside.pace;
  for (ResolvedKey& key : level.keys)
    if (const auto own = level.pace.find(key.key); own != level.pace.end()) key.value = own->second;
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

LevelKey level_key(const std::string& name) {
  constexpr char kPrefix[] = "level.";
  if (name.rfind(kPrefix, 0) != 0) return {0, name};
  const char* begin = name.data() + sizeof kPrefix - 1;
  const char* end = name.data() + name.size();
  LevelKey key;
  const auto [stop, error] = std::from_chars(begin, end, key.level);
  const bool is_number = error == std::errc() && stop != end && *stop == '.' && *begin != '0';
  if (!is_number || key.level < 1) return {0, name};
  key.key.assign(stop + 1, end);
  return key;
}

Expected<void> Wiring::set(const std::string& key, const std::string& value) {
  if (has_control_characters(key))
    return bad_input("the name of a wiring key has control characters: give a name without them");
  const LevelKey of_level = level_key(key);
  if (of_level.level > kMostLevels)
    return bad_input("wiring." + key + ": at most " + std::to_string(kMostLevels) + " levels");
  if (!is_key(of_level)) return unknown_name("wiring key", key, key_names(of_level.level > 0));
  if (value.empty()) return bad_input("wiring." + key + " is empty: give a value");
  if (has_control_characters(value))
    return bad_input("wiring." + key + " has control characters: give a value without them");
  keys_[key] = value;
  return {};
}

Expected<Resolved> resolve_keys(const Wiring& wiring) {
  const KeysByLevel levels = by_level(wiring.keys());
  Resolved resolved;
  ReadLevel inside;
  std::int32_t expected = 1;
  for (const auto& [level, keys] : levels) {
    if (level != kOutermost && level != expected++)
      return bad_input("wiring." + prefix_of(expected - 1) +
                       "ranks is missing: number the levels 1, 2, … from the inside out");
    const bool is_innermost = level == levels.begin()->first;
    auto read = read_level(keys, level, inside.ranks, is_innermost);
    if (!read) return in_level(read.error(), level);
    if (!is_innermost) {
      exchange_as_often_as(inside, *read);
      read->plan = nest(inside.plan, inside.ranks, read->plan);
    }
    for (ResolvedKey key : read->keys) {
      key.key.insert(0, prefix_of(level));
      resolved.keys.push_back(std::move(key));
    }
    inside = *std::move(read);
  }
  resolved.plan = std::move(inside.plan);
  return resolved;
}

bool lacks_outermost_level(const Wiring& wiring) {
  return by_level(wiring.keys()).size() > 1 && wiring.keys().count("exchange") == 0;
}

Wiring on_top_of(const Wiring& preset, const Wiring& own) {
  std::map<std::string, std::string> all = own.keys();
  all.insert(preset.keys().begin(), preset.keys().end());
  Wiring merged;
  for (const auto& [level, keys] : by_level(all)) {
    KeyReader reader(keys);
    Plan plan;
    visit_keys(reader, plan);
    for (const auto& [key, value] : keys) {
      const std::string name = prefix_of(level) + key;
      if (own.keys().count(name) > 0 || key == kGroupRanksKey || counts(reader, key))
        merged.keys_[name] = value;
    }
  }
  return merged;
}

Expected<Plan> resolve(const Wiring& wiring) {
  auto resolved = resolve_keys(wiring);
  if (!resolved) return resolved.error();
  return std::move(resolved->plan);
}

}  // namespace grapevine
