#include "algorithms/wiring.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "algorithms/topology.hpp"
#include "messages/ids.hpp"
#include "messages/names.hpp"

namespace grapevine {
namespace {

// Rounds that a gradient may be old, and steps between global averages, where nobody says.
constexpr std::int64_t kPartialStaleness = 10;
constexpr std::int64_t kGroupPeriod = 10;

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const KeyInfo& info : wiring_keys()) names.push_back(info.key);
  return names;
}

Error bad_value(const std::string& key, const std::string& value, const std::string& expected) {
  return bad_input("wiring." + key + " = '" + value + "': expected " + expected);
}

// Reads typed values out of a wiring and keeps the first error.
class Reader {
 public:
  explicit Reader(const Wiring& wiring) : wiring_(wiring) {}

  bool has(const std::string& key) const { return wiring_.keys().count(key) > 0; }

  std::string name(const std::string& key, const std::string& fallback,
                   const std::vector<std::string>& valid) {
    const std::string value = text(key, fallback);
    for (const std::string& v : valid)
      if (v == value) return value;
    fail(unknown_name("wiring." + key, value, valid));
    return fallback;
  }

  std::string text(const std::string& key, const std::string& fallback) const {
    const auto it = wiring_.keys().find(key);
    return it == wiring_.keys().end() ? fallback : it->second;
  }

  bool boolean(const std::string& key, bool fallback) {
    const std::string value = text(key, fallback ? "true" : "false");
    if (value != "true" && value != "false") fail(bad_value(key, value, "true or false"));
    return value == "true";
  }

  std::int64_t count(const std::string& key, std::int64_t fallback, std::int64_t least) {
    const std::string value = text(key, std::to_string(fallback));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least)
      fail(bad_value(key, value, "a whole number, at least " + std::to_string(least)));
    return number;
  }

  std::int32_t rank_count(const std::string& key, std::int32_t fallback, std::int64_t least) {
    if (!has(key)) return fallback;
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(count(key, fallback, least), std::numeric_limits<Rank>::max()));
  }

  // `key` makes sense only where `holds`; `why` completes "wiring.<key> ... does not fit".
  void only_where(const std::string& key, bool holds, const std::string& why) {
    if (has(key) && !holds)
      fail(bad_input("wiring." + key + " = '" + text(key, "") + "' does not fit " + why));
  }

  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Wiring& wiring_;
  std::optional<Error> error_;
};

std::string toml_value(const std::string& value) {
  const bool bare = value == "true" || value == "false" ||
                    (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos);
  if (bare) return value;
  std::ostringstream out;
  out << toml::value<std::string>(value);
  return out.str();
}

}  // namespace

const std::vector<KeyInfo>& wiring_keys() {
  static const std::vector<KeyInfo> keys = {
      {"exchange", "aggregate | gossip | bilateral | partial | group",
       "the role: the pattern in which ranks exchange"},
      {"pack", "gradient | model", "what is exchanged"},
      {"averaging", "push-sum | symmetric | biased",
       "how gossip weighs what it mixes; biased ignores push-sum's weight"},
      {"topology", "a topology's name", "who gossips with whom"},
      {"peers", "a number, or a schedule EPOCH:NUMBER,…", "peers per round"},
      {"update", "before | after", "whether the optimizer steps before or after the exchange"},
      {"overlap", "true | false", "gossip while the worker computes"},
      {"staleness", "a whole number",
       "tau. gossip: iterations in which an outstanding round may be skipped before it is waited "
       "for; partial: rounds that a gradient may be old; group: steps between global averages"},
      {"activation", "solo | majority | quorum",
       "who begins a partial all-reduce: the first that is ready, a drawn one, or the quorum"},
      {"quorum", "a whole number", "ranks that must be ready; more than half by default"},
      {"scale", "ranks | active", "what a partial sum is divided by: all ranks, or those in it"},
      {"group_size", "a whole number", "ranks that average; about the root of all by default"},
      {"hierarchy", "a whole number, or node: what the launcher says",
       "ranks per node: they all-reduce gradients, one of them exchanges with other nodes"},
  };
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
      std::string written;
      if (const auto* string = value.as_string()) {
        written = string->get();
      } else if (const auto* integer = value.as_integer()) {
        written = std::to_string(integer->get());
      } else if (const auto* boolean = value.as_boolean()) {
        written = boolean->get() ? "true" : "false";
      } else {
        return bad_input(where + ": wiring." + std::string(key.str()) +
                         " is neither text, a whole number nor true/false");
      }
      if (auto set = wiring.set(std::string(key.str()), written); !set)
        return Error{set.error().code, where + ": " + set.error().message};
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
    if (it != keys_.end()) text += info.key + " = " + toml_value(it->second) + "\n";
  }
  return text;
}

namespace {

// What the role exchanges, where the wiring does not say otherwise.
std::string natural_pack(Exchange exchange) {
  return exchange == Exchange::aggregate || exchange == Exchange::partial ? "gradient" : "model";
}

// Keys that belong to some of the exchanges.
void check_owners(Reader& read, const std::string& exchange) {
  static const std::vector<std::pair<const char*, std::vector<std::string>>> owners = {
      {"averaging", {"gossip"}},
      {"update", {"gossip"}},
      {"overlap", {"gossip"}},
      {"staleness", {"gossip", "partial", "group"}},
      {"topology", {"gossip", "bilateral"}},
      {"peers", {"gossip", "bilateral"}},
      {"activation", {"partial"}},
      {"quorum", {"partial"}},
      {"scale", {"partial"}},
      {"group_size", {"group"}}};
  for (const auto& [key, exchanges] : owners) {
    std::string all;
    for (const std::string& name : exchanges)
      all += (all.empty() ? "" : name == exchanges.back() ? " and " : ", ") + name;
    const bool fits = std::find(exchanges.begin(), exchanges.end(), exchange) != exchanges.end();
    read.only_where(key, fits,
                    "exchange = '" + exchange + "': it belongs to " + all +
                        ", choose exchange = '" + exchanges.front() + "'");
  }
}

void read_pack(Reader& read, const std::string& exchange, Exchange role) {
  const std::string natural = natural_pack(role);
  const std::string pack = read.name("pack", natural, {"gradient", "model"});
  if (pack == natural) return;
  read.fail(bad_input("wiring.pack = '" + pack + "' does not fit exchange = '" + exchange + "': " +
                      (natural == "gradient" ? "all-reduce sums gradients, choose pack = 'gradient'"
                                             : exchange + " mixes models, choose pack = 'model'")));
}

void read_gossip(Reader& read, Plan& plan) {
  static const std::map<std::string, Averaging> averagings = {{"push-sum", Averaging::push_sum},
                                                              {"symmetric", Averaging::symmetric},
                                                              {"biased", Averaging::biased}};
  plan.averaging =
      averagings.at(read.name("averaging", "push-sum", {"push-sum", "symmetric", "biased"}));
  plan.update = read.name("update", "before", {"before", "after"}) == "after"
                    ? Update::after_exchange
                    : Update::before_exchange;
  plan.overlap = read.boolean("overlap", false);
  plan.staleness = read.count("staleness", 0, 0);
  read.only_where("staleness", plan.overlap || plan.staleness == 0,
                  "overlap = false: a round that is waited for at once cannot be skipped, choose "
                  "overlap = true");
  read.only_where("update", !plan.overlap || plan.update == Update::before_exchange,
                  "overlap = true: what arrives during a step is folded in after it, choose "
                  "update = 'before'");
}

void read_partial(Reader& read, Plan& plan) {
  static const std::map<std::string, ActivationPolicy> policies = {
      {"solo", ActivationPolicy::solo},
      {"majority", ActivationPolicy::majority},
      {"quorum", ActivationPolicy::quorum}};
  plan.activation =
      policies.at(read.name("activation", "majority", {"solo", "majority", "quorum"}));
  plan.staleness = read.count("staleness", kPartialStaleness, 0);
  plan.quorum = read.rank_count("quorum", 0, 1);
  plan.scale_by_active = read.name("scale", "ranks", {"ranks", "active"}) == "active";
  read.only_where("quorum", plan.activation == ActivationPolicy::quorum,
                  "activation = '" + read.text("activation", "majority") +
                      "', which waits for no number of ranks: choose activation = 'quorum'");
}

void read_group(Reader& read, Plan& plan) {
  plan.staleness = read.count("staleness", kGroupPeriod, 1);
  plan.group_size = read.rank_count("group_size", 0, 1);
}

}  // namespace

Expected<Plan> resolve(const Wiring& wiring) {
  static const std::map<std::string, Exchange> roles = {{"aggregate", Exchange::aggregate},
                                                        {"gossip", Exchange::gossip},
                                                        {"bilateral", Exchange::bilateral},
                                                        {"partial", Exchange::partial},
                                                        {"group", Exchange::group}};
  Reader read(wiring);
  Plan plan;
  const std::string exchange =
      read.name("exchange", "aggregate", {"aggregate", "gossip", "bilateral", "partial", "group"});
  plan.exchange = roles.at(exchange);
  read_pack(read, exchange, plan.exchange);

  check_owners(read, exchange);
  if (plan.exchange == Exchange::gossip) read_gossip(read, plan);
  if (plan.exchange == Exchange::partial) read_partial(read, plan);
  if (plan.exchange == Exchange::group) read_group(read, plan);
  plan.topology = read.text("topology", plan.topology);
  auto peers = CountSchedule::parse(read.text("peers", "1"));
  if (!peers) read.fail(bad_input("wiring.peers: " + peers.error().message));
  plan.hierarchy = read.rank_count("hierarchy", 1, 1);
  if (read.error()) return *read.error();
  plan.peers = std::move(*peers);
  return plan;
}

}  // namespace grapevine
