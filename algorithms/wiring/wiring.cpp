#include "algorithms/wiring/wiring.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/graphs/topology.hpp"
#include "messages/ids.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

// Rounds that a gradient may be old, and steps between global averages, where nobody says.
constexpr std::int64_t kPartialStaleness = 10;
constexpr std::int64_t kGroupPeriod = 10;
constexpr std::int64_t kMaxServers = 4096;
constexpr double kMaxSeconds = 1e6;

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

  // REQUIRES: `value` is one of `names`.
  static std::ptrdiff_t index_of(const std::string& value, const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), value) - names.begin();
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

  // A finite number above `least`, at most `most`.
  double number(const std::string& key, const std::string& fallback, double least, double most) {
    const std::string value = text(key, fallback);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (!whole || !(number > least && number <= most)) {
      std::ostringstream range;
      range << "a number above " << least;
      if (most < std::numeric_limits<double>::max()) range << ", at most " << most;
      fail(bad_value(key, value, range.str()));
    }
    return number;
  }

  // A finite number, `least` or more.
  double number_from(const std::string& key, double fallback, double least) {
    if (!has(key)) return fallback;
    const std::string value = text(key, "");
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (!whole || !std::isfinite(number) || number < least) {
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

}  // namespace

const std::vector<KeyInfo>& wiring_keys() {
  static const std::vector<KeyInfo> keys = {
      {"exchange", "aggregate | gossip | bilateral | partial | group | server",
       "the role: the pattern in which ranks exchange"},
      {"pack", "gradient | model | difference", "what is exchanged"},
      {"averaging", "push-sum | symmetric | biased",
       "how gossip weighs what it mixes; biased ignores push-sum's weight"},
      {"topology", "a topology's name", "who gossips with whom"},
      {"peers", "a number, or a schedule EPOCH:NUMBER,…", "peers per round"},
      {"update", "before | after", "whether the optimizer steps before or after the exchange"},
      {"overlap", "true | false", "gossip while the worker computes"},
      {"staleness", "a whole number",
       "tau. gossip: iterations (exchanges, with local steps) in which an outstanding round may be "
       "skipped before it is waited for; partial: rounds that a gradient may be old; group: steps "
       "between global averages"},
      {"activation", "solo | majority | quorum",
       "who begins a partial all-reduce: the first that is ready, a drawn one, or the quorum"},
      {"quorum", "a whole number", "ranks that must be ready; more than half by default"},
      {"scale", "ranks | active", "what a partial sum is divided by: all ranks, or those in it"},
      {"group_size", "a whole number",
       "ranks that average, at most; about the root of all by default"},
      {"hierarchy", "a whole number, or node: what the launcher says",
       "ranks per node: they all-reduce gradients, one of them exchanges with other nodes"},
      {"compress", "none | top-k | random-k | fp16 | bf16 | int8 | sign",
       "what makes the exchanged vector smaller"},
      {"density", "a number in (0, 1]", "the share of entries that top-k and random-k keep"},
      {"density_warmup", "none | dgc | D1,D2,…[@EPOCHS]",
       "higher densities for the first epochs, one after the other"},
      {"per_layer", "true | false",
       "top-k, random-k: keep that share of each layer's entries, at least one, not of all"},
      {"value_type", "f32 | f16", "top-k, random-k: in what the chosen values travel"},
      {"selection", "exact | sampled",
       "top-k: exactly k, or k/2 to 3k/2 by a threshold from a sample"},
      {"error_feedback", "true | false", "keep what was not sent, and send it later"},
      {"sparse_reduce", "all-gather | all-gather-reselect | butterfly | tree",
       "how an aggregate adds up sparse vectors"},
      {"momentum_correction", "true | false",
       "the optimizer's momentum works on each rank before the compression"},
      {"momentum_masking", "true | false", "entries that were sent lose that momentum"},
      {"consensus_step", "a number in (0, 1]",
       "gamma: how far compressed gossip moves towards its peers"},
      {"clip", "a number above 0", "the largest L2 norm of the gradient"},
      {"clip_at", "sum | local",
       "clip the mean of all ranks, or each rank's own to 1/sqrt(ranks) of the norm"},
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
    if (it != keys_.end()) text += info.key + " = " + toml_value(it->second) + "\n";
  }
  return text;
}

namespace {

// What the role exchanges, where the wiring does not say otherwise.
Pack natural_pack(const Plan& plan) {
  if (plan.exchange == Exchange::aggregate || plan.exchange == Exchange::partial)
    return Pack::gradient;
  if (plan.exchange != Exchange::server) return Pack::model;
  return plan.rule == ServerRule::easgd ? Pack::model : Pack::gradient;
}

void read_pack(Reader& read, const std::string& exchange, Plan& plan) {
  static const std::vector<std::string> names = {"gradient", "model", "difference"};
  const Pack natural = natural_pack(plan);
  const std::string& usual = names.at(static_cast<std::size_t>(natural));
  const std::string pack = read.name("pack", usual, names);
  plan.pack = static_cast<Pack>(read.index_of(pack, names));
  if (plan.pack == natural || plan.exchange == Exchange::aggregate) return;
  const std::string why = plan.exchange == Exchange::server ? "the rule of the servers exchanges "
                          : plan.exchange == Exchange::partial ? "a partial all-reduce sums "
                                                               : exchange + " mixes ";
  read.fail(bad_input("wiring.pack = '" + pack + "' does not fit exchange = '" + exchange +
                      "': " + why + usual + "s, choose pack = '" + usual + "'"));
}

// Keys that belong to some of the exchanges.
void check_owners(Reader& read, const std::string& exchange) {
  static const std::vector<std::pair<std::vector<std::string>, std::vector<const char*>>> owners = {
      {{"gossip"}, {"averaging", "update", "overlap"}},
      {{"gossip", "partial", "group"}, {"staleness"}},
      {{"gossip", "bilateral"}, {"topology", "peers"}},
      {{"aggregate", "gossip"}, {"local_steps"}},
      {{"partial"}, {"activation", "quorum", "scale"}},
      {{"group"}, {"group_size"}},
      {{"server"},
       {"rule", "servers", "kappa", "window", "section", "section_timeout", "elasticity",
        "synchronous"}}};
  for (const auto& [exchanges, keys] : owners) {
    std::string all;
    for (const std::string& name : exchanges)
      all += (all.empty() ? "" : name == exchanges.back() ? " and " : ", ") + name;
    const bool fits = std::find(exchanges.begin(), exchanges.end(), exchange) != exchanges.end();
    for (const char* key : keys)
      read.only_where(key, fits,
                      "exchange = '" + exchange + "': it belongs to " + all +
                          ", choose exchange = '" + exchanges.front() + "'");
  }
}

// Steps without an exchange, and what is done with what they came to.
void read_local_steps(Reader& read, Plan& plan) {
  const bool aggregate = plan.exchange == Exchange::aggregate;
  plan.local_steps = read.count("local_steps", 1, 1);
  read.only_where("local_steps", !aggregate || plan.pack != Pack::gradient || plan.local_steps == 1,
                  "pack = 'gradient': gradients are summed at every step, choose pack = 'model' "
                  "or 'difference'");
  plan.outer = read.name("outer", "none", {"none", "nesterov"}) == "nesterov";
  read.only_where("outer", plan.pack == Pack::difference || !plan.outer,
                  "this pack: the outer optimizer steps along differences, choose exchange = "
                  "'aggregate' and pack = 'difference'");
  plan.outer_lr = read.number_from("outer_lr", plan.outer_lr, 0);
  plan.outer_momentum = read.number_from("outer_momentum", plan.outer_momentum, 0);
  read.only_where(
      "outer_momentum", plan.outer_momentum < 1,
      "the outer optimizer: its sum of past steps would never fade, choose less than 1");
  for (const char* key : {"outer_lr", "outer_momentum"})
    read.only_where(key, plan.outer, "outer = 'none': choose outer = 'nesterov'");
}

void read_server(Reader& read, Plan& plan) {
  const bool gem = plan.rule == ServerRule::gem, easgd = plan.rule == ServerRule::easgd;
  plan.servers = read.rank_count("servers", 1, 1);
  read.only_where("servers", plan.servers <= kMaxServers,
                  "this engine: at most " + std::to_string(kMaxServers));
  plan.kappa = read.number_from("kappa", plan.kappa, 0);
  plan.window = read.count("window", 1, 1);
  plan.strict = read.name("section", "strict", {"strict", "relaxed"}) == "strict";
  plan.section_timeout = read.number_from("section_timeout", plan.section_timeout, 1e-6);
  plan.elasticity = read.number_from("elasticity", plan.elasticity, 0);
  plan.synchronous = read.boolean("synchronous", false);
  read.only_where("section_timeout", plan.section_timeout <= kMaxSeconds,
                  "a clock: at most a million seconds");
  for (const char* key : {"kappa", "section", "section_timeout"})
    read.only_where(key, gem, "this rule: it belongs to gem, choose rule = 'gem'");
  read.only_where("window", !gem, "rule = 'gem': it commits at every step");
  for (const char* key : {"elasticity", "synchronous"})
    read.only_where(key, easgd, "this rule: it belongs to easgd, choose rule = 'easgd'");
}

void read_gossip(Reader& read, Plan& plan) {
  static const std::map<std::string, MixingRule> averagings = {{"push-sum", MixingRule::push_sum},
                                                               {"symmetric", MixingRule::symmetric},
                                                               {"biased", MixingRule::biased}};
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
  read.only_where("averaging", plan.averaging != MixingRule::biased || plan.staleness == 0,
                  "staleness > 0: whose round was skipped has not halved its model for it, and "
                  "without a weight nobody can tell, choose averaging = 'push-sum'");
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

SparseReduce read_sparse_reduce(Reader& read) {
  static const std::map<std::string, SparseReduce> names = {
      {"all-gather", SparseReduce::all_gather},
      {"all-gather-reselect", SparseReduce::all_gather_reselect},
      {"butterfly", SparseReduce::butterfly},
      {"tree", SparseReduce::tree}};
  return names.at(read.name("sparse_reduce", "all-gather",
                            {"all-gather", "all-gather-reselect", "butterfly", "tree"}));
}

// The parts of the compression among themselves.
CompressionSettings read_compressor(Reader& read) {
  CompressionSettings c;
  c.name = read.name("compress", "none", compressor_names());
  for (const char* key :
       {"density", "density_warmup", "per_layer", "value_type", "selection", "error_feedback",
        "sparse_reduce", "momentum_correction", "momentum_masking", "consensus_step"})
    read.only_where(key, c.enabled(),
                    "compress = 'none': nothing is compressed, choose compress = "
                    "'top-k'");
  const std::string with = "compress = '" + c.name + "': ";
  const bool sparse = c.name == "top-k" || c.name == "random-k";
  for (const char* key : {"density", "density_warmup"})
    read.only_where(key, sparse, with + "it keeps all entries, choose compress = 'top-k'");
  for (const char* key : {"per_layer", "value_type"})
    read.only_where(key, sparse, with + "it sends no list of entries, choose compress = 'top-k'");
  c.per_layer = read.boolean("per_layer", false);
  c.value_type =
      read.name("value_type", "f32", {"f32", "f16"}) == "f16" ? ValueType::f16 : ValueType::f32;
  read.only_where("selection", c.name == "top-k",
                  with + "it does not select by size, choose compress = 'top-k'");
  auto density =
      DensitySchedule::parse(read.text("density", "0.001"), read.text("density_warmup", "none"));
  if (density)
    c.density = std::move(*density);
  else
    read.fail(density.error());
  c.sampled = read.name("selection", "exact", {"exact", "sampled"}) == "sampled";
  c.error_feedback = read.boolean("error_feedback", true);
  c.reduce = read_sparse_reduce(read);
  read.only_where("sparse_reduce", sparse || c.reduce == SparseReduce::all_gather,
                  with +
                      "it merges lists of indices, choose sparse_reduce = 'all-gather' or "
                      "compress = 'top-k'");
  c.momentum_correction = read.boolean("momentum_correction", false);
  read.only_where("momentum_correction", c.error_feedback || !c.momentum_correction,
                  "error_feedback = false: corrected momentum is collected in the residual, choose "
                  "error_feedback = true");
  c.momentum_masking = read.boolean("momentum_masking", true);
  read.only_where("momentum_masking", c.momentum_correction && sparse,
                  "a wiring without momentum_correction and a sparse compressor: choose "
                  "momentum_correction = true and compress = 'top-k'");
  return c;
}

// The compression and the role.
void read_compression(Reader& read, const std::string& exchange, Plan& plan) {
  plan.compression = read_compressor(read);
  CompressionSettings& c = plan.compression;
  const std::string role = "exchange = '" + exchange + "': ";
  read.only_where("sparse_reduce",
                  plan.exchange == Exchange::aggregate || plan.exchange == Exchange::partial,
                  role + "it belongs to aggregate and partial, choose exchange = 'aggregate'");
  for (const char* key : {"momentum_correction", "momentum_masking"})
    read.only_where(key, plan.exchange == Exchange::aggregate,
                    role + "it belongs to aggregate, choose exchange = 'aggregate'");
  const bool models = plan.exchange == Exchange::aggregate && plan.pack == Pack::model;
  read.only_where("compress", !c.enabled() || !models,
                  "pack = 'model': what is not sent would become 0 in the model, choose pack = "
                  "'difference'");
  read.only_where("momentum_correction", plan.pack == Pack::gradient || !c.momentum_correction,
                  "this pack: it collects gradients, choose pack = 'gradient'");
  read.only_where("scale", !plan.scale_by_active || !c.enabled(),
                  "compress = '" + c.name +
                      "': ranks without a gradient still send what was left over, choose scale = "
                      "'ranks'");
  read.only_where("compress", !c.enabled() || plan.exchange != Exchange::bilateral,
                  role +
                      "both ends of a pair move by the same exact difference, choose exchange = "
                      "'gossip' or compress = 'none'");
  read.only_where(
      "compress",
      !c.enabled() || plan.exchange != Exchange::server || plan.rule != ServerRule::easgd,
      "rule = 'easgd': its clients offer models, of which what is not sent would count "
      "as 0, choose another rule or compress = 'none'");
  read.only_where("compress", !c.enabled() || plan.exchange != Exchange::group,
                  role +
                      "a group's average has nowhere to keep what compression leaves over, choose "
                      "exchange = 'gossip' or compress = 'none'");
  if (plan.exchange == Exchange::gossip && c.enabled()) {
    read.only_where("compress", plan.averaging == MixingRule::symmetric,
                    "averaging = '" + read.text("averaging", "push-sum") +
                        "': compressed differences are mixed with symmetric weights, choose "
                        "averaging = 'symmetric'");
    read.only_where("compress", plan.local_steps == 1,
                    "local_steps = '" + read.text("local_steps", "1") +
                        "': compressed gossip exchanges at every step, choose local_steps = 1");
    read.only_where(
        "compress", !plan.overlap,
        "overlap = true: the copies of a round must be complete before the next, choose "
        "overlap = false");
  }
  read.only_where("consensus_step", plan.exchange == Exchange::gossip && c.enabled(),
                  role + "it belongs to compressed gossip, choose exchange = 'gossip'");
  c.consensus_step = default_consensus_step(c);
  if (read.has("consensus_step")) c.consensus_step = read.number("consensus_step", "1", 0, 1);
}

void read_clip(Reader& read, const std::string& exchange, Plan& plan) {
  read.only_where("clip", plan.exchange == Exchange::aggregate,
                  "exchange = '" + exchange + "': it clips the mean gradient of an aggregate");
  read.only_where("clip", plan.pack == Pack::gradient,
                  "this pack: it clips gradients, choose pack = 'gradient'");
  read.only_where("clip_at", read.has("clip"), "a wiring without clip: give clip a norm");
  if (!read.has("clip")) return;
  plan.clip.norm = read.number("clip", "1", 0, std::numeric_limits<double>::max());
  plan.clip.at_sum = read.name("clip_at", "sum", {"sum", "local"}) == "sum";
}

}  // namespace

Expected<Plan> resolve(const Wiring& wiring) {
  static const std::vector<std::string> exchanges = {"aggregate", "gossip", "bilateral",
                                                     "partial",   "group",  "server"};
  static const std::vector<std::string> rules = {"gem", "downpour", "adaptive", "agn", "easgd"};
  Reader read(wiring);
  Plan plan;
  const std::string exchange = read.name("exchange", "aggregate", exchanges);
  plan.exchange = static_cast<Exchange>(read.index_of(exchange, exchanges));
  plan.rule = static_cast<ServerRule>(read.index_of(read.name("rule", "gem", rules), rules));
  check_owners(read, exchange);
  read_pack(read, exchange, plan);
  read_local_steps(read, plan);
  if (plan.exchange == Exchange::gossip) read_gossip(read, plan);
  if (plan.exchange == Exchange::partial) read_partial(read, plan);
  if (plan.exchange == Exchange::group) read_group(read, plan);
  if (plan.exchange == Exchange::server) read_server(read, plan);
  read_compression(read, exchange, plan);
  read_clip(read, exchange, plan);
  plan.topology = read.text("topology", plan.topology);
  auto peers = CountSchedule::parse(read.text("peers", "1"));
  if (!peers) read.fail(bad_input("wiring.peers: " + peers.error().message));
  plan.hierarchy = read.rank_count("hierarchy", 1, 1);
  if (read.error()) return *read.error();
  plan.peers = std::move(*peers);
  return plan;
}

}  // namespace grapevine
