// KeyReader: visits the keys of a wiring. A role or part states each of its keys once, where it
// uses it: name, type, range, default and explanation. One kind of visit reads the keys of a
// wiring, the other lists all keys that there are.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// A value that another key must have for a key to count, e.g. {"exchange", "server"}.
using KeyCondition = std::pair<std::string, std::string>;

struct KeyInfo {
  std::string key;
  std::string values;       // for people: "a | b" or "a whole number, at least 1"
  std::string fallback;     // the default, for people: "0 (gossip), 10 (partial)"; empty: none
  std::string explanation;  // one line
  // The defaults, each with the values of the innermost condition that have it.
  std::vector<std::pair<std::string, std::vector<std::string>>> fallbacks;
  // Where the key counts: for each place its conditions, the outermost first.
  std::vector<std::vector<KeyCondition>> places;
};

// A key of a resolved wiring.
struct ResolvedKey {
  std::string key;
  std::string value;
  bool given = false;  // by the user or a preset; else the default
  std::string explanation;
};

struct NumberRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
  bool above_least = false;  // `least` itself is outside
  bool below_most = false;   // `most` itself is outside
};

// Not thread-safe. The first error is kept; a value that is refused reads as its default.
class KeyReader {
 public:
  // Reads: `given` outlives this.
  explicit KeyReader(const std::map<std::string, std::string>& given) : given_(&given) {}
  // Lists.
  KeyReader() = default;

  // All values of all keys are visited, none is read.
  bool lists() const { return given_ == nullptr; }
  bool has(const std::string& key) const { return given_ != nullptr && given_->count(key) > 0; }

  // Each declares `key` and returns its value; `fallback` where the wiring does not have it.
  std::string text(const std::string& key, const std::string& fallback, const std::string& values,
                   const std::string& explanation);
  std::string name(const std::string& key, const std::string& fallback,
                   const std::vector<std::string>& valid, const std::string& explanation);
  bool flag(const std::string& key, bool fallback, const std::string& explanation);
  std::int64_t whole(const std::string& key, std::int64_t fallback, std::int64_t least,
                     const std::string& explanation,
                     std::int64_t most = std::numeric_limits<std::int64_t>::max());
  double number(const std::string& key, double fallback, const NumberRange& range,
                const std::string& explanation);
  // One of `values`, each with its name.
  template <class Value>
  Value choice(const std::string& key, const std::string& fallback,
               const std::vector<std::pair<std::string, Value>>& values,
               const std::string& explanation) {
    std::vector<std::string> names;
    for (const auto& [name, value] : values) names.push_back(name);
    const std::string chosen = this->name(key, fallback, names, explanation);
    for (const auto& [name, value] : values)
      if (name == chosen) return value;
    return values.front().second;
  }
  // What `parse` makes of a text: Expected<Value> parse(text).
  template <class Value, class Parse>
  Value parsed(const std::string& key, const std::string& fallback, const std::string& values,
               Parse&& parse, const std::string& explanation) {
    auto value = parse(text(key, fallback, values, explanation));
    if (value) return std::move(*value);
    fail(bad_input("wiring." + key + ": " + value.error().message));
    auto usual = parse(fallback);  // for what is read until the error is
    return usual ? std::move(*usual) : Value();
  }

  // Keys that count only where `key` is `value`: `body` declares them. It is visited where the
  // wiring has that value, or where all keys are listed.
  void where(const std::string& key, const std::string& value, const std::function<void()>& body);
  // The same for several values.
  void where_any(const std::string& key, const std::vector<std::string>& values,
                 const std::function<void()>& body);

  // The value of a key that was declared before, as written.
  std::string value_of(const std::string& key) const;

  // A key that was given and does not fit; `why` completes "wiring.<key> = … does not fit …".
  void only_where(const std::string& key, bool holds, const std::string& why);
  void fail(Error error);
  const std::optional<Error>& error() const { return error_; }

  // The values read so far, in the order of their declaration.
  const std::vector<ResolvedKey>& resolved() const { return resolved_; }
  // The keys listed so far; one that counts in several places is there once.
  const std::vector<KeyInfo>& listed() const { return listed_; }

 private:
  void declare(const std::string& key, const std::string& values, const std::string& fallback,
               const std::string& explanation);
  const std::map<std::string, std::string>* given_ = nullptr;  // null: lists
  std::vector<ResolvedKey> resolved_;
  std::vector<KeyInfo> listed_;
  std::vector<KeyCondition> place_;  // of the keys declared now
  std::optional<Error> error_;
};

// Why `key` counts for nothing in a wiring that resolved to `resolved`, and what to choose instead:
// of the conditions of its places, the outermost that the wiring does not meet.
Error key_without_effect(const KeyInfo& key, const std::string& value,
                         const std::vector<ResolvedKey>& resolved);

}  // namespace grapevine
