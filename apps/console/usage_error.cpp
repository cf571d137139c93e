#include "apps/console/usage_error.hpp"

#include <algorithm>
#include <cstdlib>

#include "messages/text/names.hpp"
#include "messages/text/nearest_name.hpp"

namespace grapevine {
namespace {

// Of CLI11's errors: "Could not convert: NAME = VALUE".
const std::string kUnread = "Could not convert: ", kEquals = " = ";

bool begins(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

// As users write it, also of an option that no help shows: CLI11 names these "".
std::string name_of(const CLI::Option& option) {
  const std::string name = option.get_name();
  if (!name.empty() || option.get_lnames().empty()) return name;
  return "--" + option.get_lnames().front();
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Whether only the environment has set the option.
bool from_environment(const VerbUsage& usage, const CLI::Option& option) {
  const std::string& variable = option.get_envname();
  if (variable.empty()) return false;
  const char* value = std::getenv(variable.c_str());  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == '\0') return false;
  const auto names_it = [&option](const std::string& argument) {
    for (const std::string& name : option.get_lnames())
      if (argument == "--" + name || begins(argument, "--" + name + "=")) return true;
    for (const std::string& name : option.get_snames())
      if (begins(argument, "-" + name)) return true;
    return false;
  };
  // After "--" follow the arguments of another verb.
  const auto end = std::find(usage.arguments.begin(), usage.arguments.end(), "--");
  return std::none_of(usage.arguments.begin(), end, names_it);
}

// "--lr 'abc': …", or "GRAPEVINE_LR='abc': …".
std::string at_option(const VerbUsage& usage, const CLI::Option& option, const std::string& what) {
  if (!from_environment(usage, option)) return name_of(option) + " " + what;
  return option.get_envname() + (begins(what, "'") ? "=" : " ") + what;
}

// For an unknown argument that looks like an option: the option that was probably meant.
std::string unknown_option(const VerbUsage& usage, const std::string& typed,
                           const std::string& help) {
  const std::vector<std::string> known = long_names(usage.app);
  const bool has_job = usage.app.get_option_no_throw("job") != nullptr;
  if (typed == "--config" && has_job)
    return "unknown option '--config': 'grapevine " + usage.verb +
           "' takes its job file without one, e.g. 'grapevine " + usage.verb + " job.toml'";
  if (begins(typed, "--")) return unknown_name("option", typed, known).message;
  const bool ranks = std::find(known.begin(), known.end(), "--ranks") != known.end();
  return "unknown option '" + typed +
         "': " + (typed == "-n" && ranks ? "did you mean '--ranks'? " : "") + help;
}

// Whether `text`, which begins with the option's name and `separator`, is of this option. CLI11
// quotes no name of a hidden one: then it has to have the value that follows.
bool is_of(const CLI::Option& option, const std::string& text, const std::string& separator) {
  const std::string start = option.get_name() + separator;
  if (!begins(text, start)) return false;
  if (!option.get_name().empty()) return true;
  const auto& given = option.results();
  return std::any_of(given.begin(), given.end(), [&](const std::string& value) {
    return begins(text, start + value) || begins(text, start + "'" + value + "'");
  });
}

// What an option or a positional argument is, in brackets: its line of the help as far as the first
// clause goes.
std::string meaning_of(const CLI::Option& option) {
  const std::string& line = option.get_description();
  const std::size_t end = std::min({line.size(), line.find("; "), line.find(". ")});
  return line.empty() ? "" : " (" + line.substr(0, end) + ")";
}

std::string extras_message(const VerbUsage& usage, const std::string& help) {
  const std::vector<std::string> extras = usage.app.remaining();
  for (const std::string& extra : extras)
    if (extra.size() > 1 && extra[0] == '-' && extra != "--")
      return unknown_option(usage, extra.substr(0, extra.find('=')), help);
  return "unexpected argument '" + (extras.empty() ? "" : extras.front()) + "': " + help;
}

}  // namespace

std::string usage_message(const VerbUsage& usage, const CLI::ParseError& error) {
  const std::string help = "see 'grapevine " + usage.verb + " --help'";
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return extras_message(usage, help);
  const std::string text = error.what();
  for (const CLI::Option* option : usage.app.get_options()) {
    const std::string name = option->get_name();
    const bool unread = begins(text, kUnread);
    if (unread && is_of(*option, text.substr(kUnread.size()), kEquals)) {
      const std::size_t start = kUnread.size() + name.size() + kEquals.size();
      const std::string value = "'" + text.substr(start) + "': expected ";
      const bool is_switch = option->get_items_expected_max() == 0;
      return at_option(usage, *option, value + (is_switch ? "true or false" : "another value")) +
             ": " + help;
    }
    if (text == name + " is required")
      return name + " is missing" + meaning_of(*option) + ": " + help;
    if (!is_of(*option, text, ": ")) continue;
    const bool missing = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
    const std::string count =
        option->count() > 1 ? "is given more than once" : "needs a value" + meaning_of(*option);
    const std::string what = missing ? count : text.substr(name.size() + 2);
    return at_option(usage, *option, what) + ": " + help;
  }
  return text + ": " + help;
}

Error with_variable(const VerbUsage& usage, Error error) {
  for (const CLI::Option* option : usage.app.get_options()) {
    const std::string name = name_of(*option);
    const bool named = begins(error.message, name + " ") || begins(error.message, name + ":") ||
                       begins(error.message, "unknown " + name + " ");
    if (named && !option->get_positional() && from_environment(usage, *option))
      return {error.code, option->get_envname() + ": " + error.message};
  }
  return error;
}

std::vector<std::string> unknown_variables(const std::vector<std::string>& environment,
                                           const std::vector<std::string>& known) {
  const std::string start = "GRAPEVINE_";
  std::vector<std::string> suffixes;  // their common prefix would make all of them near
  for (const std::string& name : known)
    if (begins(name, start)) suffixes.push_back(name.substr(start.size()));
  std::vector<std::string> warnings;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!begins(name, start) || std::find(known.begin(), known.end(), name) != known.end())
      continue;
    const auto nearest = nearest_name(name.substr(start.size()), suffixes);
    warnings.push_back("the environment variable " + name + " is set, but nothing reads it" +
                       (nearest ? ": did you mean " + start + *nearest + "?" : ""));
  }
  return warnings;
}

}  // namespace grapevine
