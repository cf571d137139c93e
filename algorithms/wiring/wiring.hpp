// Wirings: a role and its parts, by name. A preset is a wiring with a paper.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "algorithms/compressors/settings.hpp"
#include "algorithms/schedules.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The keys that somebody set, in the order of the key table; values as written. This is what a user
// sees, edits and prints; Plan is what the engine runs.
class Wiring {
 public:
  // Errors (bad_input): a key that does not exist, with the nearest guess; an empty value.
  Expected<void> set(const std::string& key, const std::string& value);
  // Reads the table [wiring] of a TOML text; `where` names it in errors. A text without the table
  // is an empty wiring.
  static Expected<Wiring> parse_toml(const std::string& text, const std::string& where);
  // A TOML table [wiring] with exactly the keys that are set.
  std::string to_toml() const;

  const std::map<std::string, std::string>& keys() const { return keys_; }

 private:
  std::map<std::string, std::string> keys_;
};

enum class Exchange { aggregate, gossip, bilateral, partial, group, server };
// What ranks exchange.
enum class Pack { gradient, model, difference };
// What a client commits, and what the server makes of it (server_rules.hpp).
enum class ServerRule { gem, downpour, adaptive, agn, easgd };
// How gossip weighs what it mixes.
enum class MixingRule {
  push_sum,   // evenly among the peers of a directed graph, with a weight that travels along
  symmetric,  // Metropolis-Hastings weights, every edge used both ways: doubly stochastic
  biased      // as push_sum, but the weight is ignored
};
// Who may begin a partial collective: the first that is ready, one drawn for each, or the Q-th.
enum class ActivationPolicy { solo, majority, quorum };
// When the optimizer steps.
enum class Update { before_exchange, after_exchange };

// A validated wiring with every default filled in.
struct Plan {
  Exchange exchange = Exchange::aggregate;
  std::string topology = "exponential";         // gossip, bilateral
  CountSchedule peers;                          // peers per round
  MixingRule averaging = MixingRule::push_sum;  // gossip
  Update update = Update::before_exchange;      // gossip
  bool overlap = false;                         // gossip: exchange while the worker computes
  // The bound tau. gossip with overlap: rounds skipped running; partial: the age of a gradient, in
  // rounds; group: steps from one global average to the next, >= 1.
  std::int64_t staleness = 0;
  ActivationPolicy activation = ActivationPolicy::majority;  // partial
  std::int32_t quorum = 0;       // partial: ranks that are waited for; 0: more than half
  bool scale_by_active = false;  // partial: 1/active in the place of 1/P
  std::int32_t group_size = 0;   // group: 0: about sqrt(P)
  std::uint64_t seed = 0;        // of what all ranks draw alike: not a key
  std::int32_t hierarchy = 1;    // ranks per node; above 1 only one of them exchanges

  Pack pack = Pack::gradient;
  std::int64_t local_steps = 1;  // aggregate of models or differences, gossip: steps per exchange
  bool outer = false;            // aggregate of differences: Nesterov's momentum on their mean
  double outer_lr = 0.7;
  double outer_momentum = 0.9;

  CompressionSettings compression;  // aggregate, partial, gossip, server
  ClipSettings clip;                // aggregate

  std::int32_t servers = 0;  // ranks after the workers, each with a slice of the parameters
  ServerRule rule = ServerRule::gem;
  double kappa = 1;             // gem: how much of the proxy's energy the central variable may have
  std::int64_t window = 1;      // lambda: steps per commit
  bool strict = true;           // gem: one client at a time between pull and commit
  double section_timeout = 10;  // seconds after which a grant is taken back
  double elasticity = 0.9;      // easgd: beta = workers * alpha
  bool synchronous = false;     // easgd: all clients of a round move against the same centre

  // Whether every rank takes the planned steps itself; else the fast ones take over from the slow.
  bool plans_each_rank() const { return exchange != Exchange::bilateral; }
  // Whether a rank's clock is the number of its own steps; else all ranks' gradients count.
  bool counts_own_steps() const { return plans_each_rank() && exchange != Exchange::partial; }
};

// Checks every value, and that the parts fit each other: the error names the two that do not and
// why.
Expected<Plan> resolve(const Wiring& wiring);

struct KeyInfo {
  std::string key;
  std::string values;       // for people: "a | b" or "a whole number"
  std::string explanation;  // one line
};
const std::vector<KeyInfo>& wiring_keys();

struct Preset {
  std::string name;
  std::string title;  // for people, e.g. "Stochastic Gradient Push"
  std::string paper;
  Wiring wiring;
};
const std::vector<Preset>& presets();
Expected<Preset> find_preset(const std::string& name);

}  // namespace grapevine
