#include "algorithms/keys.hpp"

#include <cmath>

#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

Error bad_value(const std::string& key, const std::string& value, const std::string& expected) {
  return bad_input("wiring." + key + " = '" + value + "': expected " + expected);
}

std::string text_of(const NumberRange& range) {
  const bool bounded = range.most < std::numeric_limits<double>::max();
  return std::string("a number") + (range.above_least ? " above " : ", at least ") +
         number_text(range.least) +
         (!bounded           ? std::string()
          : range.below_most ? " and below " + number_text(range.most)
                             : ", at most " + number_text(range.most));
}

bool lies_in(double number, const NumberRange& range) {
  return std::isfinite(number) &&
         (range.above_least ? number > range.least : number >= range.least) &&
         (range.below_most ? number < range.most : number <= range.most);
}

std::string listing(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

// Notes that `role`, or what else the default depends on, has the default `fallback` too, and
// writes all of them down for people.
void add_fallback(KeyInfo& key, const std::string& fallback, const std::string& role) {
  auto& all = key.fallbacks;
  auto same = std::find_if(all.begin(), all.end(),
                           [&](const auto& known) { return known.first == fallback; });
  if (same == all.end()) same = all.insert(all.end(), {fallback, {}});
  if (std::find(same->second.begin(), same->second.end(), role) == same->second.end())
    same->second.push_back(role);
  key.fallback = all.size() == 1 ? fallback : "";
  for (std::size_t i = 0; all.size() > 1 && i < all.size(); ++i) {
    std::string roles;
    for (const std::string& name : all[i].second) roles += (roles.empty() ? "" : ", ") + name;
    key.fallback += (i == 0 ? "" : ", ") + all[i].first + " (" + roles + ")";
  }
}

std::string value_in(const std::vector<ResolvedKey>& resolved, const std::string& key) {
  for (const ResolvedKey& entry : resolved)
    if (entry.key == key) return entry.value;
  return "";
}

}  // namespace

// ---- what a key may be ----

std::string KeyReader::text(const std::string& key, const std::string& fallback,
                            const std::string& values, const std::string& explanation) {
  declare(key, values, fallback, explanation);
  return has(key) ? given_->at(key) : fallback;
}

std::string KeyReader::name(const std::string& key, const std::string& fallback,
                            const std::vector<std::string>& valid, const std::string& explanation) {
  std::string values;
  for (const std::string& value : valid) values += (values.empty() ? "" : " | ") + value;
  const std::string value = text(key, fallback, values, explanation);
  if (std::find(valid.begin(), valid.end(), value) != valid.end()) return value;
  fail(unknown_name("wiring." + key, value, valid));
  return fallback;
}

bool KeyReader::flag(const std::string& key, bool fallback, const std::string& explanation) {
  const std::string value = text(key, fallback ? "true" : "false", "true | false", explanation);
  if (value != "true" && value != "false") fail(bad_value(key, value, "true or false"));
  return value == "true";
}

std::int64_t KeyReader::whole(const std::string& key, std::int64_t fallback, std::int64_t least,
                              const std::string& explanation, std::int64_t most) {
  std::string values = "a whole number, at least " + std::to_string(least);
  if (most < std::numeric_limits<std::int32_t>::max())
    values += ", at most " + std::to_string(most);
  // A default outside the range stands for one that depends on the run: the explanation names it.
  const bool fixed = fallback >= least;
  const std::string value =
      text(key, fixed ? std::to_string(fallback) : std::string(), values, explanation);
  if (!has(key)) return fallback;
  const auto number = number_in<std::int64_t>(value);
  if (number && *number >= least && *number <= most) return *number;
  fail(bad_value(key, value, values));
  return fallback;
}

double KeyReader::number(const std::string& key, double fallback, const NumberRange& range,
                         const std::string& explanation) {
  const bool fixed = lies_in(fallback, range);
  const std::string value =
      text(key, fixed ? number_text(fallback) : std::string(), text_of(range), explanation);
  if (!has(key)) return fallback;
  const auto number = number_in<double>(value);
  if (number && lies_in(*number, range)) return *number;
  fail(bad_value(key, value, text_of(range)));
  return fallback;
}

// ---- where it counts ----

void KeyReader::where(const std::string& key, const std::string& value,
                      const std::function<void()>& body) {
  if (!lists() && value_of(key) != value) return;
  place_.emplace_back(key, value);
  body();
  place_.pop_back();
}

void KeyReader::where_any(const std::string& key, const std::vector<std::string>& values,
                          const std::function<void()>& body) {
  for (const std::string& value : values) where(key, value, body);
}

void KeyReader::only_where(const std::string& key, bool holds, const std::string& why) {
  if (has(key) && !holds)
    fail(bad_input("wiring." + key + " = '" + given_->at(key) + "' does not fit " + why));
}

void KeyReader::fail(Error error) {
  if (!lists() && !error_) error_ = std::move(error);
}

void KeyReader::declare(const std::string& key, const std::string& values,
                        const std::string& fallback, const std::string& explanation) {
  const auto same = [&key](const auto& entry) { return entry.key == key; };
  if (!lists()) {
    if (std::none_of(resolved_.begin(), resolved_.end(), same))
      resolved_.push_back({key, has(key) ? given_->at(key) : fallback, has(key), explanation});
    return;
  }
  auto entry = std::find_if(listed_.begin(), listed_.end(), same);
  const std::string role = place_.empty() ? "" : place_.back().second;
  if (entry == listed_.end()) {
    listed_.push_back({key, values, "", explanation, {}, {place_}});
    return add_fallback(listed_.back(), fallback, role);
  }
  add_fallback(*entry, fallback, role);
  // Explanations that differ by role name it.
  if (entry->explanation.find(explanation) == std::string::npos) {
    if (entry->explanation.find(entry->places.front().front().second + ": ") != 0)
      entry->explanation = entry->places.front().front().second + ": " + entry->explanation;
    entry->explanation += "; " + place_.front().second + ": " + explanation;
  }
  entry->places.push_back(place_);
}

std::string KeyReader::value_of(const std::string& key) const { return value_in(resolved_, key); }

Error key_without_effect(const KeyInfo& key, const std::string& value,
                         const std::vector<ResolvedKey>& resolved) {
  auto places = key.places;
  for (std::size_t depth = 0; !places.empty(); ++depth) {
    std::vector<std::string> values;
    std::vector<std::vector<KeyCondition>> met;
    std::string condition;
    for (const auto& place : places) {
      if (depth >= place.size()) continue;
      condition = place[depth].first;
      if (value_in(resolved, condition) == place[depth].second)
        met.push_back(place);
      else if (std::find(values.begin(), values.end(), place[depth].second) == values.end())
        values.push_back(place[depth].second);
    }
    if (met.empty() && !values.empty())
      return bad_input("wiring." + key.key + " = '" + value + "' does not fit " + condition +
                       " = '" + value_in(resolved, condition) + "': it belongs to " +
                       listing(values) + ", choose " + condition + " = '" + values.front() + "'");
    places = std::move(met);
  }
  return bad_input("wiring." + key.key + " = '" + value +
                   "' counts for nothing in this wiring: leave it out");
}

}  // namespace grapevine
