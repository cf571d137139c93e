// How verbs declare their options: readable from the environment too, checked before conversion.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// GRAPEVINE_<OPTION>: the variable of --option.
std::string environment_name(const std::string& option);

namespace verb_options {

Expected<void> check_range(const std::string& option, std::int64_t value, std::int64_t least,
                           std::int64_t most, const std::string& more);
Expected<void> check_range(const std::string& option, double value, double least, double most,
                           const std::string& more);

std::string whole_number_complaint(std::string& text, std::int64_t least, std::int64_t most);
std::string number_complaint(const std::string& text);

// The error of a value of `T`, as it follows the option's name in a message; empty where
// nothing is. A whole number is rewritten in the one way that CLI11 reads as it is meant: it would
// take "010" for 8.
template <class T>
std::string complaint(std::string& text) {
  if (text.empty()) return "is empty: give a value";
  if constexpr (std::is_integral<T>::value) {
    static_assert(std::is_signed<T>::value, "the range below is that of signed numbers");
    constexpr auto kLeast = static_cast<std::int64_t>(std::numeric_limits<T>::min());
    constexpr auto kMost = static_cast<std::int64_t>(std::numeric_limits<T>::max());
    return whole_number_complaint(text, kLeast, kMost);
  } else if constexpr (std::is_floating_point<T>::value) {
    return number_complaint(text);
  }
  return "";
}

template <class T>
CLI::Validator checked() {
  return CLI::Validator([](std::string& text) { return complaint<T>(text); }, "");
}

}  // namespace verb_options

// Adds "--name", readable from the environment too. Of two, the last one counts: people append
// options to a command of their history.
template <class T>
CLI::Option* add_option(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  return app.add_option("--" + name, value, help)
      ->envname(environment_name(name))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->transform(verb_options::checked<T>())
      ->capture_default_str();
}

// The same for a list: comma-separated, or an array of a file.
template <class T>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<T>& values,
                      const std::string& help) {
  return app.add_option("--" + name, values, help)
      ->envname(environment_name(name))
      ->delimiter(',')
      ->transform(verb_options::checked<T>())
      ->capture_default_str();
}

// Whether its value is that of its variable, which CLI11 uses where the command line has none.
bool from_environment(const CLI::Option& option);

inline CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                               const std::string& help) {
  return app.add_flag("--" + name, value, help)->envname(environment_name(name));
}

// A number as wide as any option: limits of one may be of another type.
template <class T>
using WidestNumber =
    typename std::conditional<std::is_integral<T>::value, std::int64_t, double>::type;

// Errors (bad_input): `value` is no finite number from `least` to `most`, both included:
// "--threads 300: expected 0..256". `more` follows, such as ", 0: as many as there are cores".
template <class T>
Expected<void> check_range(const std::string& option, T value, WidestNumber<T> least,
                           WidestNumber<T> most, const std::string& more = "") {
  return verb_options::check_range(option, WidestNumber<T>{value}, least, most, more);
}
// The same without an upper limit: "--seed -1: expected 0 or more".
template <class T>
Expected<void> check_least(const std::string& option, T value, WidestNumber<T> least,
                           const std::string& more = "") {
  constexpr auto kMost = std::numeric_limits<WidestNumber<T>>::max();
  return verb_options::check_range(option, WidestNumber<T>{value}, least, kMost, more);
}
// The same for numbers above 0: "--timeout 0: expected a number above 0, at most 1000000".
Expected<void> check_above_zero(const std::string& option, double value,
                                double most = std::numeric_limits<double>::max(),
                                const std::string& more = "");
// The first error among several checks.
Expected<void> first_error(std::initializer_list<Expected<void>> checks);

// Puts values before those of an option whose sources all add up
// (CLI::MultiOptionPolicy::TakeAll): of values that exclude each other the later source's counts.
// Throws CLI::ParseError where the option does not take them.
void put_before(CLI::Option& option, std::vector<std::string> values);

// The whole of a TOML file, at most 1 MiB, that the parser can take. Errors (bad_input) suggest
// `what` instead.
Expected<std::string> read_toml_file(const std::string& path, const std::string& what);
// The same for the text of such a file that has been read already.
Expected<std::string> check_toml_text(std::string text, const std::string& path,
                                      const std::string& what);

// The source of each value from a file: "FILE:LINE" by "--option" or "wiring.key".
using Places = std::map<std::string, std::string>;

// Sets the options that a TOML text names and that neither the environment nor the command line
// has set, or adds to them where they add up; keys in `others` are not its options. Notes in
// `places` where it set them, and where the keys of the tables in `others` are. Errors (bad_input):
// file, line and key; an option named twice.
Expected<void> read_options(CLI::App& app, const std::string& text, const std::string& path,
                            const std::set<std::string>& others, Places& places);

// `error` behind the place of the option or wiring key that it begins with, where a file has set
// that one: "job.toml:3: --lr nan: …".
Error located(Error error, const Places& places);

// The same for a whole file; nothing where `path` is empty.
Expected<void> read_config_file(CLI::App& app, const std::string& path);

}  // namespace grapevine
