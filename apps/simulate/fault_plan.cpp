#include "apps/simulate/fault_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "messages/random.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr char kForms[] =
    "crash=R@T, restart=R@T, join=R@T, pause=R@T+D, partition=R1-R2@T+D, slow=R1-R2xF@T+D, "
    "skew=R:D or random=N, with times like "
    "0.5 (seconds) or 300ms";
constexpr std::int64_t kMostFaults = 10'000;
constexpr double kMostSlow = 1e6;
constexpr double kMostFaultSeconds = 1e6;  // as parse_duration

// Of a rank's life: it ends or begins.
bool is_of_life(Fault::Kind kind) {
  return kind == Fault::Kind::crash || kind == Fault::Kind::restart || kind == Fault::Kind::join;
}

Error bad_term(const std::string& term, const std::string& why) {
  return bad_input("--fail '" + term + "': expected " + why);
}

struct Halves {
  std::string before, after;
};

std::optional<Halves> split_at(const std::string& text, char at) {
  const auto found = text.find(at);
  if (found == std::string::npos) return std::nullopt;
  return Halves{text.substr(0, found), text.substr(found + 1)};
}

std::optional<Duration> read_time(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.eE-") == std::string::npos;
  if (plain) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !(number >= 0 && number <= kMostFaultSeconds)) return std::nullopt;
    return Duration(std::llround(number * 1e9));
  }
  const auto time = parse_duration(text);
  if (time) return *time;
  return std::nullopt;
}

std::optional<Rank> read_rank(const std::string& text, const FaultBounds& bounds) {
  if (text.empty() || text.size() > 7 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const Rank rank = std::stoi(text);
  if (rank >= bounds.ranks) return std::nullopt;
  return rank;
}

// "R1-R2", for slow "R1-R2xF".
bool read_link(const std::string& text, const FaultBounds& bounds, Fault& fault) {
  std::string ends = text;
  if (fault.kind == Fault::Kind::slow) {
    const auto parts = split_at(text, 'x');
    if (!parts) return false;
    std::size_t used = 0;
    try {
      fault.factor = std::stod(parts->after, &used);
    } catch (const std::exception&) {
      return false;
    }
    if (used != parts->after.size()) return false;
    if (!(fault.factor >= 1 && fault.factor <= kMostSlow)) return false;
    ends = parts->before;
  }
  const auto parts = split_at(ends, '-');
  const auto a = parts ? read_rank(parts->before, bounds) : std::nullopt;
  const auto b = parts ? read_rank(parts->after, bounds) : std::nullopt;
  if (!a || !b || *a == *b) return false;
  fault.rank = *a;
  fault.peer = *b;
  return true;
}

bool read_when(const std::string& text, Fault& fault) {
  if (is_of_life(fault.kind)) {
    const auto at = read_time(text);
    fault.at = at.value_or(Timestamp{0});
    return at.has_value();
  }
  const auto parts = split_at(text, '+');
  const auto at = parts ? read_time(parts->before) : std::nullopt;
  const auto length = parts ? read_time(parts->after) : std::nullopt;
  if (!at || !length) return false;
  fault.at = *at;
  fault.length = *length;
  return true;
}

// "R:D"; of a rank only once.
Expected<void> add_skew(const std::string& term, const std::string& value,
                        const FaultBounds& bounds, std::vector<Fault>& faults) {
  const auto parts = split_at(value, ':');
  const auto rank = parts ? read_rank(parts->before, bounds) : std::nullopt;
  const bool behind = parts && parts->after.rfind('-', 0) == 0;
  const auto skew = parts ? read_time(parts->after.substr(behind ? 1 : 0)) : std::nullopt;
  if (!rank || !skew)
    return bad_term(term, "skew=R:D with a rank in 0.." + std::to_string(bounds.ranks - 1) +
                              " and a time like 0.5, -3ms or 300us");
  if (skews_of(faults).count(*rank) > 0)
    return bad_input("--fail '" + term + "': the clock of rank " + parts->before +
                     " has a skew already: give it once");
  Fault fault;
  fault.kind = Fault::Kind::skew;
  fault.rank = *rank;
  fault.length = behind ? -*skew : *skew;
  faults.push_back(fault);
  return {};
}

Expected<Fault> read_fault(Fault::Kind kind, const std::string& term, const std::string& value,
                           const FaultBounds& bounds) {
  Fault fault;
  fault.kind = kind;
  const auto parts = split_at(value, '@');
  const std::string ranks = ", with ranks in 0.." + std::to_string(bounds.ranks - 1);
  if (!parts || !read_when(parts->after, fault)) return bad_term(term, kForms + ranks);
  if (kind == Fault::Kind::partition || kind == Fault::Kind::slow) {
    if (!read_link(parts->before, bounds, fault)) return bad_term(term, kForms + ranks);
    return fault;
  }
  const auto rank = read_rank(parts->before, bounds);
  if (!rank) return bad_term(term, kForms + ranks);
  fault.rank = *rank;
  return fault;
}

// ---- seeded faults ----

class Draw {
 public:
  // `known`: the faults that are not drawn.
  Draw(const FaultBounds& bounds, const std::vector<Fault>& known)
      : bounds_(bounds), rng_(mix_seed(bounds.seed, 0x6661756c74)) {
    for (const Fault& fault : known)
      if (is_of_life(fault.kind)) dead_.insert(fault.rank);
  }

  Fault next() {
    Fault fault;
    const double kind = uniform();
    if (bounds_.restarts && !gone_.empty() && kind > 0.7) return restart();
    const bool crash = static_cast<std::int32_t>(dead_.size()) < bounds_.crashes && kind < 0.25;
    fault.kind = crash                             ? Fault::Kind::crash
                 : bounds_.ranks < 2 || kind < 0.5 ? Fault::Kind::pause
                 : kind < 0.75                     ? Fault::Kind::partition
                                                   : Fault::Kind::slow;
    fault.rank = below(crash ? bounds_.workers : bounds_.ranks);
    while (crash && dead_.count(fault.rank) > 0) fault.rank = (fault.rank + 1) % bounds_.workers;
    if (crash) dead_.insert(fault.rank);
    if (fault.kind == Fault::Kind::partition || fault.kind == Fault::Kind::slow)
      fault.peer = (fault.rank + 1 + below(bounds_.ranks - 1)) % bounds_.ranks;
    if (fault.kind == Fault::Kind::slow) fault.factor = std::round(2 + 18 * uniform());
    fault.at = part(0.9);
    if (crash) gone_[fault.rank] = fault.at;
    if (!crash) fault.length = std::max(part(0.2), Duration{std::chrono::milliseconds(1)});
    return fault;
  }

 private:
  // Of the rank with the least number, so that the plan depends on the seed alone.
  Fault restart() {
    Fault fault;
    fault.kind = Fault::Kind::restart;
    fault.rank = gone_.begin()->first;
    fault.at = gone_.begin()->second + std::max(part(0.1), Duration{std::chrono::milliseconds(1)});
    gone_.erase(gone_.begin());
    return fault;
  }
  double uniform() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  std::int32_t below(std::int32_t count) {
    return static_cast<std::int32_t>(uniform() * static_cast<double>(count));
  }
  // Whole microseconds: the text of a plan gives it back exactly.
  Duration part(double most) {
    const double ns = static_cast<double>(bounds_.expected.count()) * most * uniform();
    return std::chrono::microseconds(static_cast<std::int64_t>(ns / 1000));
  }

  const FaultBounds& bounds_;
  Rng rng_;
  std::set<Rank> dead_;             // ranks that have crashed, or come later
  std::map<Rank, Timestamp> gone_;  // those of them that were drawn and have not returned, and when
};

// How many to draw.
Expected<std::int64_t> read_random(const std::string& term, const std::string& value) {
  if (value.empty() || value.size() > 6 ||
      value.find_first_not_of("0123456789") != std::string::npos || std::stoll(value) > kMostFaults)
    return bad_term(term, "random=N with N at most " + std::to_string(kMostFaults));
  return std::stoll(value);
}

// `drawn`: how many are to be drawn once all others are known.
Expected<void> add_term(const std::string& term, const FaultBounds& bounds,
                        std::vector<Fault>& faults, std::int64_t& drawn) {
  const auto parts = split_at(term, '=');
  if (!parts) return bad_term(term, kForms);
  const auto& [name, value] = *parts;
  if (name == "random") {
    const auto count = read_random(term, value);
    if (!count) return count.error();
    drawn += *count;
    return {};
  }
  if (name == "skew") return add_skew(term, value, bounds, faults);
  if ((name == "restart" || name == "join") && !bounds.restarts)
    return bad_input("--fail '" + term +
                     "': " + (name == "join" ? "a rank cannot join" : "a lost rank cannot return") +
                     " in this wiring: use crash or pause");
  const std::vector<std::pair<std::string, Fault::Kind>> kinds = {
      {"crash", Fault::Kind::crash},         {"restart", Fault::Kind::restart},
      {"join", Fault::Kind::join},           {"pause", Fault::Kind::pause},
      {"partition", Fault::Kind::partition}, {"slow", Fault::Kind::slow}};
  for (const auto& [kind_name, kind] : kinds) {
    if (name != kind_name) continue;
    auto fault = read_fault(kind, term, value, bounds);
    if (!fault) return fault.error();
    faults.push_back(*fault);
    return {};
  }
  return unknown_name("--fail kind", name,
                      {"crash", "restart", "join", "pause", "partition", "slow", "skew", "random"});
}

// By rank: its crashes and restarts, and when it joins, in the order of time.
std::map<Rank, std::vector<Fault>> lives_of(const std::vector<Fault>& faults) {
  std::map<Rank, std::vector<Fault>> lives;
  for (const Fault& fault : faults)
    if (is_of_life(fault.kind)) lives[fault.rank].push_back(fault);
  for (auto& [rank, of_rank] : lives)
    std::stable_sort(of_rank.begin(), of_rank.end(),
                     [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return lives;
}

Expected<void> check_lives(const std::vector<Fault>& faults) {
  for (const auto& [rank, of_rank] : lives_of(faults)) {
    const auto joins = [](const Fault& fault) { return fault.kind == Fault::Kind::join; };
    const std::string name = "--fail: rank " + std::to_string(rank);
    const auto join = std::find_if(of_rank.begin(), of_rank.end(), joins);
    if (std::count_if(of_rank.begin(), of_rank.end(), joins) > 1)
      return bad_input(name + " joins twice: give one join=" + std::to_string(rank) + "@T");
    if (join != of_rank.end() && join != of_rank.begin())
      return bad_input(
          name + " is there before it joins: give an earlier join=" + std::to_string(rank) + "@T");
    bool lives = join == of_rank.end();
    for (const Fault& fault : of_rank) {
      const bool crash = fault.kind == Fault::Kind::crash;
      if (crash && !lives)
        return bad_input(name + " crashes twice: give a restart=" + std::to_string(rank) +
                         "@T in between");
      if (!crash && lives)
        return bad_input(name + " restarts and has not crashed: give a crash=" +
                         std::to_string(rank) + "@T before it");
      lives = !crash;
    }
  }
  return {};
}

std::set<Rank> joining_in(const std::vector<Fault>& faults) {
  std::set<Rank> ranks;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::join) ranks.insert(fault.rank);
  return ranks;
}

// The shortest unit that is exact.
std::string short_time(Duration time) {
  const std::int64_t ns = time.count();
  if (ns % 1'000'000'000 == 0) return std::to_string(ns / 1'000'000'000) + "s";
  if (ns % 1'000'000 == 0) return std::to_string(ns / 1'000'000) + "ms";
  if (ns % 1'000 == 0) return std::to_string(ns / 1'000) + "us";
  return std::to_string(ns) + "ns";
}

}  // namespace

FaultBounds FaultBounds::of_known_plan() {
  FaultBounds bounds;
  bounds.ranks = std::numeric_limits<Rank>::max();
  bounds.restarts = true;
  return bounds;
}

Expected<std::vector<Fault>> parse_faults(const std::string& spec, const FaultBounds& bounds) {
  std::vector<Fault> faults;
  std::int64_t drawn = 0;
  std::istringstream terms(spec);
  for (std::string term; std::getline(terms, term, ',');)
    if (auto added = add_term(term, bounds, faults, drawn); !added) return added.error();
  if (drawn > kMostFaults)
    return bad_input("--fail '" + spec + "': expected at most " + std::to_string(kMostFaults) +
                     " random faults in all");
  if (auto checked = check_lives(faults); !checked) return checked.error();
  Draw draw(bounds, faults);
  for (; drawn > 0; --drawn) faults.push_back(draw.next());
  return faults;
}

std::string faults_text(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    if (!text.empty()) text += ",";
    const std::string rank = std::to_string(fault.rank), peer = std::to_string(fault.peer);
    switch (fault.kind) {
      case Fault::Kind::crash:
        text += "crash=" + rank + "@" + short_time(fault.at);
        continue;
      case Fault::Kind::restart:
        text += "restart=" + rank + "@" + short_time(fault.at);
        continue;
      case Fault::Kind::join:
        text += "join=" + rank + "@" + short_time(fault.at);
        continue;
      case Fault::Kind::skew:
        text += "skew=" + rank + (fault.length < Duration::zero() ? ":-" : ":") +
                short_time(fault.length < Duration::zero() ? -fault.length : fault.length);
        continue;
      case Fault::Kind::pause:
        text += "pause=" + rank;
        break;
      case Fault::Kind::partition:
        text += "partition=" + rank + "-" + peer;
        break;
      case Fault::Kind::slow:
        text += "slow=" + rank + "-" + peer + "x" + number_text(fault.factor);
        break;
    }
    text += "@" + short_time(fault.at) + "+" + short_time(fault.length);
  }
  return text;
}

std::vector<Fault> without_orphans(std::vector<Fault> faults) {
  const auto lives = lives_of(faults);
  const auto is_orphan = [&lives](const Fault& fault) {
    if (fault.kind != Fault::Kind::restart) return false;
    const Fault* before = nullptr;
    for (const Fault& one : lives.at(fault.rank)) {
      if (one.kind == Fault::Kind::restart && one.at == fault.at) break;
      before = &one;
    }
    return before == nullptr || before->kind != Fault::Kind::crash;
  };
  faults.erase(std::remove_if(faults.begin(), faults.end(), is_orphan), faults.end());
  return faults;
}

std::int32_t count_joins(const std::string& spec) {
  std::int32_t joins = 0;
  std::istringstream terms(spec);
  for (std::string term; std::getline(terms, term, ',');)
    if (term.rfind("join=", 0) == 0) ++joins;
  return joins;
}

Expected<std::int32_t> initial_workers_of(const std::vector<Fault>& faults, std::int32_t workers) {
  const std::set<Rank> joining = joining_in(faults);
  const std::int32_t initial = workers - static_cast<std::int32_t>(joining.size());
  if (initial < 1) return bad_input("--fail: all ranks that train join: leave one that begins");
  for (Rank rank = initial; rank < workers; ++rank)
    if (joining.count(rank) == 0)
      return bad_input("--fail: the last ranks that train join, and rank " + std::to_string(rank) +
                       " does not: give join=" + std::to_string(rank) + "@T, too");
  return initial;
}

std::vector<Death> deaths_of(const std::vector<Fault>& faults) {
  std::vector<Death> deaths;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::crash) deaths.push_back({fault.rank, fault.at});
  return deaths;
}

std::vector<Return> returns_of(const std::vector<Fault>& faults) {
  std::vector<Return> returns;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::restart || fault.kind == Fault::Kind::join)
      returns.push_back({fault.rank, fault.at});
  return returns;
}

std::vector<RankPause> pauses_of(const std::vector<Fault>& faults) {
  std::vector<RankPause> pauses;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::pause) pauses.push_back({fault.rank, fault.at, fault.length});
  return pauses;
}

std::map<Rank, Duration> skews_of(const std::vector<Fault>& faults) {
  std::map<Rank, Duration> skews;
  for (const Fault& fault : faults)
    if (fault.kind == Fault::Kind::skew) skews[fault.rank] = fault.length;
  return skews;
}

std::vector<LinkFault> link_faults_of(const std::vector<Fault>& faults) {
  std::vector<LinkFault> links;
  for (const Fault& fault : faults) {
    if (fault.kind == Fault::Kind::partition)
      links.push_back(
          {LinkFault::Kind::partition, fault.rank, fault.peer, fault.at, fault.length, 1});
    if (fault.kind == Fault::Kind::slow)
      links.push_back(
          {LinkFault::Kind::slow, fault.rank, fault.peer, fault.at, fault.length, fault.factor});
  }
  return links;
}

}  // namespace grapevine
