// How verbs declare their options: readable from the environment too, checked before conversion.
#pragma once
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// GRAPEVINE_<OPTION>: the variable that stands for --option.
std::string environment_name(const std::string& option);

namespace verb_options {

constexpr std::size_t kMaxDigits = 18;  // that fit 64 bits, with a sign

// What is wrong with a value, as CLI11 wants it; empty where nothing is.
template <class T>
std::string complaint(const std::string& text) {
  if (text.empty()) return "is empty: give a value";
  // The parser would make the largest number of it.
  const bool huge = std::is_integral<T>::value && text.size() > kMaxDigits;
  return huge ? "'" + text + "' is too large a number" : std::string();
}

}  // namespace verb_options

// Adds "--name", readable from the environment too. Said twice, the last one counts: people append
// options to a command of their history.
template <class T>
CLI::Option* add_option(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  return app.add_option("--" + name, value, help)
      ->envname(environment_name(name))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(
          CLI::Validator([](std::string& text) { return verb_options::complaint<T>(text); }, ""))
      ->capture_default_str();
}

// The same for a list: comma-separated, or an array of a file.
template <class T>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<T>& values,
                      const std::string& help) {
  return app.add_option("--" + name, values, help)
      ->envname(environment_name(name))
      ->delimiter(',')
      ->capture_default_str();
}

inline CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                               const std::string& help) {
  return app.add_flag("--" + name, value, help)->envname(environment_name(name));
}

// Puts values before those that an option has, where what all places say adds up
// (CLI::MultiOptionPolicy::TakeAll): of values that exclude each other the later place's wins.
// Throws CLI::ParseError where the option does not take them.
void put_before(CLI::Option& option, std::vector<std::string> values);

// The whole of a TOML file, at most 1 MiB, that the parser can take. Errors (bad_input) say to give
// `what` instead.
Expected<std::string> read_toml_file(const std::string& path, const std::string& what);

// Sets the options that a TOML text names and that neither the environment nor the command line
// has set, or adds to them where they add up; keys in `others` are somebody else's. Errors
// (bad_input): file, line and key.
Expected<void> read_options(CLI::App& app, const std::string& text, const std::string& path,
                            const std::set<std::string>& others);

// The same for a whole file; nothing where `path` is empty.
Expected<void> read_config_file(CLI::App& app, const std::string& path);

}  // namespace grapevine
