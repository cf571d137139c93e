// How verbs declare their options: readable from the environment too, checked before conversion.
#pragma once
#include <string>
#include <type_traits>

#include <CLI/CLI.hpp>

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

inline CLI::Option* add_switch(CLI::App& app, const std::string& name, bool& value,
                               const std::string& help) {
  return app.add_flag("--" + name, value, help)->envname(environment_name(name));
}

// Adds --config FILE, a TOML file with the verb's other options; the environment and the command
// line win over it.
void add_config_file(CLI::App& app);

}  // namespace grapevine
