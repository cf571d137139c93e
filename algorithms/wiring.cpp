#include "algorithms/wiring.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "algorithms/topology.hpp"
#include "messages/ids.hpp"
#include "messages/names.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxServers = 4096;

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

  // A finite number >= `least`.
  double number(const std::string& key, double fallback, double least) {
    if (!has(key)) return fallback;
    const std::string value = text(key, "");
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (end != value.c_str() + value.size() || !std::isfinite(number) || number < least) {
      std::ostringstream expected;
      expected << "a number, at least " << least;
      fail(bad_value(key, value, expected.str()));
    }
    return number;
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
      {"exchange", "aggregate | gossip | bilateral | server",
       "the role: the pattern in which ranks exchange"},
      {"pack", "gradient | model | difference", "what is exchanged"},
      {"averaging", "push-sum | symmetric | biased",
       "how gossip weighs what it mixes; biased ignores push-sum's weight"},
      {"topology", "a topology's name", "who gossips with whom"},
      {"peers", "a number, or a schedule EPOCH:NUMBER,…", "peers per round"},
      {"update", "before | after", "whether the optimizer steps before or after the exchange"},
      {"overlap", "true | false", "gossip while the worker computes"},
      {"staleness", "a whole number",
       "tau: iterations in which an outstanding round may be skipped before it is waited for"},
      {"hierarchy", "a whole number, or node: what the launcher says",
       "ranks per node: they all-reduce gradients, one of them exchanges with other nodes"},
      {"local_steps", "a whole number", "H: steps of each rank from one exchange to the next"},
      {"outer", "none | nesterov", "the optimizer that steps along the mean difference"},
      {"outer_lr", "a number", "the rate of the outer optimizer"},
      {"outer_momentum", "a number", "the momentum of the outer optimizer"},
      {"rule", "gem | downpour | adaptive | agn | easgd",
       "what clients commit and what servers make of it"},
      {"servers", "a whole number", "ranks that hold a slice of the parameters each"},
      {"kappa", "a number", "gem: energy of the central variable over that of the proxy"},
      {"window", "a whole number", "lambda: steps of a client from one commit to the next"},
      {"section", "strict | relaxed",
       "gem: whether one client at a time is between its pull and its commit"},
      {"section_timeout", "seconds", "gem: after which a client that stalls loses its turn"},
      {"elasticity", "a number", "easgd: beta, workers times alpha"},
      {"synchronous", "true | false", "easgd: whether all clients wait for each other"},
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
Pack natural_pack(const Plan& plan) {
  if (plan.exchange == Exchange::aggregate) return Pack::gradient;
  if (plan.exchange != Exchange::server) return Pack::model;
  return plan.rule == ServerRule::easgd ? Pack::model : Pack::gradient;
}

void read_pack(Reader& read, const std::string& exchange, Plan& plan) {
  static const std::vector<std::string> names = {"gradient", "model", "difference"};
  const Pack natural = natural_pack(plan);
  const std::string& usual = names.at(static_cast<std::size_t>(natural));
  const std::string pack = read.name("pack", usual, names);
  plan.pack = static_cast<Pack>(std::find(names.begin(), names.end(), pack) - names.begin());
  if (plan.pack == natural || plan.exchange == Exchange::aggregate) return;
  const std::string why = plan.exchange == Exchange::server ? "the rule of the servers exchanges "
                                                            : exchange + " mixes ";
  read.fail(bad_input("wiring.pack = '" + pack + "' does not fit exchange = '" + exchange +
                      "': " + why + usual + "s, choose pack = '" + usual + "'"));
}

// Steps without an exchange, and what is done with what they came to.
void read_local_steps(Reader& read, const std::string& exchange, Plan& plan) {
  const bool aggregate = plan.exchange == Exchange::aggregate;
  plan.local_steps = read.count("local_steps", 1, 1);
  read.only_where("local_steps", aggregate || plan.exchange == Exchange::gossip,
                  "exchange = '" + exchange + "': it belongs to aggregate and gossip" +
                      (plan.exchange == Exchange::server ? ", choose window" : ""));
  read.only_where("local_steps", !aggregate || plan.pack != Pack::gradient || plan.local_steps == 1,
                  "pack = 'gradient': gradients are summed at every step, choose pack = 'model' "
                  "or 'difference'");
  plan.outer = read.name("outer", "none", {"none", "nesterov"}) == "nesterov";
  read.only_where("outer", plan.pack == Pack::difference || !plan.outer,
                  "this pack: the outer optimizer steps along differences, choose exchange = "
                  "'aggregate' and pack = 'difference'");
  plan.outer_lr = read.number("outer_lr", plan.outer_lr, 0);
  plan.outer_momentum = read.number("outer_momentum", plan.outer_momentum, 0);
  for (const char* key : {"outer_lr", "outer_momentum"})
    read.only_where(key, plan.outer, "outer = 'none': choose outer = 'nesterov'");
}

void read_server(Reader& read, Plan& plan) {
  const bool gem = plan.rule == ServerRule::gem, easgd = plan.rule == ServerRule::easgd;
  plan.servers =
      static_cast<std::int32_t>(std::min<std::int64_t>(read.count("servers", 1, 1), kMaxServers));
  plan.kappa = read.number("kappa", plan.kappa, 0);
  plan.window = read.count("window", 1, 1);
  plan.strict = read.name("section", "strict", {"strict", "relaxed"}) == "strict";
  plan.section_timeout = read.number("section_timeout", plan.section_timeout, 1e-6);
  plan.elasticity = read.number("elasticity", plan.elasticity, 0);
  plan.synchronous = read.boolean("synchronous", false);
  for (const char* key : {"kappa", "section", "section_timeout"})
    read.only_where(key, gem, "this rule: it belongs to gem, choose rule = 'gem'");
  read.only_where("window", !gem, "rule = 'gem': it commits at every step");
  for (const char* key : {"elasticity", "synchronous"})
    read.only_where(key, easgd, "this rule: it belongs to easgd, choose rule = 'easgd'");
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

}  // namespace

Expected<Plan> resolve(const Wiring& wiring) {
  static const std::map<std::string, Exchange> roles = {{"aggregate", Exchange::aggregate},
                                                        {"gossip", Exchange::gossip},
                                                        {"bilateral", Exchange::bilateral},
                                                        {"server", Exchange::server}};
  static const std::vector<std::string> rules = {"gem", "downpour", "adaptive", "agn", "easgd"};
  Reader read(wiring);
  Plan plan;
  const std::string exchange =
      read.name("exchange", "aggregate", {"aggregate", "gossip", "bilateral", "server"});
  plan.exchange = roles.at(exchange);
  const std::string rule = read.name("rule", "gem", rules);
  plan.rule = static_cast<ServerRule>(std::find(rules.begin(), rules.end(), rule) - rules.begin());
  read_pack(read, exchange, plan);
  read_local_steps(read, exchange, plan);

  const std::string role = "exchange = '" + exchange + "': it belongs to ";
  for (const char* key : {"averaging", "update", "overlap", "staleness"})
    read.only_where(key, plan.exchange == Exchange::gossip,
                    role + "gossip, choose exchange = 'gossip'");
  for (const char* key : {"topology", "peers"})
    read.only_where(key, plan.exchange == Exchange::gossip || plan.exchange == Exchange::bilateral,
                    role + "gossip and bilateral, choose exchange = 'gossip'");
  for (const char* key : {"rule", "servers", "kappa", "window", "section", "section_timeout",
                          "elasticity", "synchronous"})
    read.only_where(key, plan.exchange == Exchange::server,
                    role + "parameter servers, choose exchange = 'server'");
  if (plan.exchange == Exchange::gossip) read_gossip(read, plan);
  if (plan.exchange == Exchange::server) read_server(read, plan);
  plan.topology = read.text("topology", plan.topology);
  auto peers = CountSchedule::parse(read.text("peers", "1"));
  if (!peers) read.fail(bad_input("wiring.peers: " + peers.error().message));
  plan.hierarchy = static_cast<std::int32_t>(
      std::min<std::int64_t>(read.count("hierarchy", 1, 1), std::numeric_limits<Rank>::max()));
  if (read.error()) return *read.error();
  plan.peers = std::move(*peers);
  return plan;
}

}  // namespace grapevine
