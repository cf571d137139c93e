#include "apps/verb_options.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <toml++/toml.h>

#include "apps/read_up_to.hpp"
#include "messages/names.hpp"
#include "messages/number_text.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;  // bytes
// The parser of TOML needs stack for each part of a dotted key.
constexpr int kMostDots = 1000;

// Options that a file may name.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (name != "help") names.push_back(name);
  return names;
}

// As one would type it; nothing for arrays, tables and dates.
std::optional<std::string> toml_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  std::ostringstream out;
  if (const auto* integer = node.as_integer()) {
    out << integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    out << number_text(number->get());
  } else {
    return std::nullopt;
  }
  return out.str();
}

// The same for each value of an array; nothing where one of them is none of these.
std::optional<std::vector<std::string>> toml_texts(const toml::node& node, bool several) {
  std::vector<std::string> texts;
  const auto add = [&texts](const toml::node& value) {
    const auto text = toml_text(value);
    if (text) texts.push_back(*text);
    return text.has_value();
  };
  const auto* array = several ? node.as_array() : nullptr;
  const bool all = array != nullptr ? std::all_of(array->begin(), array->end(), add) : add(node);
  return all ? std::optional(std::move(texts)) : std::nullopt;
}

Expected<void> apply(CLI::App& app, const std::string& where, const std::string& key,
                     const toml::node& value) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  const std::vector<std::string> valid = option_names(app);
  if (std::find(valid.begin(), valid.end(), name) == valid.end()) {
    const Error error = unknown_name("option", key, valid);
    return bad_input(where + ": " + error.message);
  }
  CLI::Option* option = app.get_option("--" + name);
  const bool adds_up = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  // The environment or the command line has said otherwise.
  if (option->count() > 0 && !adds_up) return {};
  const bool several = option->get_items_expected_max() > 1;
  auto texts = toml_texts(value, several);
  if (!texts)
    return bad_input(where + ": " + key + ": expected text, a number or true/false" +
                     (several ? ", or an array of them" : ""));
  try {
    put_before(*option, *std::move(texts));
  } catch (const CLI::ParseError& error) {
    return bad_input(where + ": " + key + ": " + error.what());
  }
  return {};
}

}  // namespace

std::string environment_name(const std::string& option) {
  std::string name = "GRAPEVINE_" + option;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

void put_before(CLI::Option& option, std::vector<std::string> values) {
  const std::vector<std::string> later = option.results();
  values.insert(values.end(), later.begin(), later.end());
  option.clear();
  for (std::string& value : values) option.add_result(std::move(value));
  option.run_callback();
}

Expected<std::string> read_toml_file(const std::string& path, const std::string& what) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return bad_input(path + ": is a folder: give " + what);
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad_input(path + ": cannot be read: give " + what);
  std::string text = read_up_to(file, kLargestFile);
  if (text.size() > kLargestFile) return bad_input(path + ": is larger than 1 MiB: give " + what);
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (std::count(line.begin(), line.end(), '.') > kMostDots)
      return bad_input(path + ":" + std::to_string(number) + ": more than " +
                       std::to_string(kMostDots) + " dots in a line: give " + what);
  return text;
}

Expected<void> read_options(CLI::App& app, const std::string& text, const std::string& path,
                            const std::set<std::string>& others) {
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return bad_input(path + ":" + std::to_string(error.source().begin.line) + ": " +
                     std::string(error.description()));
  }
  for (const auto& [key, value] : document) {
    if (others.count(std::string(key.str())) > 0) continue;
    const std::string where = path + ":" + std::to_string(value.source().begin.line);
    if (auto applied = apply(app, where, std::string(key.str()), value); !applied) return applied;
  }
  return {};
}

Expected<void> read_config_file(CLI::App& app, const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_toml_file(path, "a TOML file with options");
  if (!text) return text.error();
  return read_options(app, *text, path, {});
}

}  // namespace grapevine
