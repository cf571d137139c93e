// Wirings: a role and its parts, by name. A preset is a wiring with a paper.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "algorithms/keys.hpp"
#include "algorithms/wiring/plan.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The keys that are set, values as written. A user writes the wiring; the engine runs the Plan.
//
// A wiring may have levels inside: "level.1.KEY" is a key of the innermost one, and "level.1.ranks"
// the number of ranks in each of its groups. Keys without a level are those of the outermost one.
class Wiring {
 public:
  // Errors (bad_input): a key that does not exist, with the nearest guess; an empty value.
  Expected<void> set(const std::string& key, const std::string& value);
  // Reads the table [wiring] of a TOML text, or the tables [[wiring.level]], the innermost first,
  // whose last is the outermost level where it has no ranks; `where` names the text in errors. A
  // text without them is an empty wiring.
  static Expected<Wiring> parse_toml(const std::string& text, const std::string& where);
  // The TOML tables with exactly the keys that are set, in the order of the key table; parse_toml()
  // reads them back. For programs that write wirings, and tests; commands print wiring_tables().
  std::string to_toml() const;

  const std::map<std::string, std::string>& keys() const { return keys_; }

 private:
  friend Wiring on_top_of(const Wiring& preset, const Wiring& own);

  std::map<std::string, std::string> keys_;
};

// "key = value", as TOML has it.
std::string toml_line(const std::string& key, const std::string& value);

inline constexpr std::int32_t kMostLevels = 8;  // inside the outermost one
inline constexpr char kGroupRanksKey[] = "ranks";

// "level.2.pack": level 2 and "pack". A key without a level: level 0.
struct LevelKey {
  std::int32_t level = 0;
  std::string key;
};
LevelKey level_key(const std::string& name);

// Whether it has levels inside, and does not name the exchange around them.
bool lacks_outermost_level(const Wiring& wiring);

struct Resolved {
  Plan plan;
  std::vector<ResolvedKey> keys;  // every key that counts in this wiring, the innermost level first
};

// The TOML tables of these keys in their order: the header of each, and its keys without a level.
struct WiringTable {
  std::string header;  // "[wiring]" or "[[wiring.level]]"
  std::vector<ResolvedKey> keys;
};
std::vector<WiringTable> wiring_tables(const std::vector<ResolvedKey>& keys);

// Checks every value, and that the parts fit each other: the error names the two that do not and
// why.
Expected<Resolved> resolve_keys(const Wiring& wiring);
Expected<Plan> resolve(const Wiring& wiring);

// `own` on top of a preset: without the keys of the preset that count for nothing then, e.g. those
// of another role.
Wiring on_top_of(const Wiring& preset, const Wiring& own);

// All keys of all roles, `exchange` first; `ranks`, of levels alone, is not one of them.
const std::vector<KeyInfo>& wiring_keys();

struct Preset {
  std::string name;
  std::string title;  // for people, e.g. "Stochastic Gradient Push"
  std::string paper;
  Wiring wiring;
};
// The shipped ones, then those from outside.
const std::vector<Preset>& presets();
// Adds a preset from outside; `keys`: "KEY=VALUE …". The roles and compressors of a program are
// registered before: to set a key is to read which keys there are. Not thread-safe. Errors
// (bad_input): a name that is taken; keys that do not exist or do not fit each other.
Expected<void> register_preset(const std::string& name, const std::string& title,
                               const std::string& paper, const std::string& keys);
// `custom` is no paper's: it sets no key.
inline constexpr char kCustomWiring[] = "custom";
Expected<Preset> find_preset(const std::string& name);

}  // namespace grapevine
