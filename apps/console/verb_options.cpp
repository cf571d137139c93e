#include "apps/console/verb_options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <toml++/toml.h>

#include "apps/console/read_up_to.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/toml_problem.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;  // bytes
// The parser of TOML needs stack for each part of a dotted key.
constexpr int kMostDots = 1000;

// Whether a file may name the option.
bool is_of_files(const std::string& name) { return name != "help" && name != "help-all"; }

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (is_of_files(name)) names.push_back(name);
  return names;
}

// Null where a file may not name it, or it is unknown.
CLI::Option* option_named(CLI::App& app, const std::string& name) {
  if (!is_of_files(name)) return nullptr;
  for (CLI::Option* option : app.get_options())
    for (const std::string& its_name : option->get_lnames())
      if (its_name == name) return option;
  return nullptr;
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

// An option of a file: its key as written, its name, and "FILE:LINE".
struct FileKey {
  std::string key;
  std::string name;
  std::string place;
};

// A library's error about a value, without the option's name in front: the key is there already.
std::string without_name(const std::string& message, const std::string& name) {
  for (const std::string& start : {"--" + name + ": ", "--" + name + " "})
    if (message.rfind(start, 0) == 0) return message.substr(start.size());
  const std::string unread = "Could not convert: --" + name + " = ";  // of a switch
  if (message.rfind(unread, 0) == 0)
    return "'" + message.substr(unread.size()) + "': expected true or false";
  return message;
}

Expected<void> apply(CLI::App& app, const FileKey& key, const toml::node& value, Places& places) {
  CLI::Option* option = option_named(app, key.name);
  if (option == nullptr)
    return bad_input(key.place + ": " + unknown_name("option", key.key, option_names(app)).message);
  const bool adds_up = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  // The environment or the command line has precedence.
  if (option->count() > 0 && !adds_up) return {};
  const bool several = option->get_items_expected_max() > 1;
  auto texts = toml_texts(value, several);
  if (!texts)
    return bad_input(key.place + ": " + key.key + ": expected text, a number or true/false" +
                     (several ? ", or an array of them" : ""));
  if (!several && texts->front().empty())
    return bad_input(key.place + ": " + key.key + " is empty: give a value, or leave it out");
  try {
    put_before(*option, *std::move(texts));
  } catch (const CLI::ParseError& error) {
    return bad_input(key.place + ": " + key.key + " " + without_name(error.what(), key.name));
  }
  places["--" + key.name] = key.place;
  return {};
}

void note_table(const std::string& table, const toml::node& value, const std::string& path,
                Places& places) {
  if (!value.is_table()) return;
  for (const auto& [key, inner] : *value.as_table())
    places[table + "." + std::string(key.str())] =
        path + ":" + std::to_string(inner.source().begin.line);
}

}  // namespace

std::string environment_name(const std::string& option) {
  std::string name = "GRAPEVINE_" + option;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

bool from_environment(const CLI::Option& option) {
  const char* value = std::getenv(option.get_envname().c_str());
  return value != nullptr && option.results() == std::vector<std::string>{value};
}

namespace verb_options {

std::string whole_number_complaint(std::string& text, std::int64_t least, std::int64_t most) {
  const std::string shown = "'" + text + "': expected a whole number";
  const bool negative = text[0] == '-';
  const std::size_t sign = negative || text[0] == '+' ? 1 : 0;
  const bool digits =
      text.size() > sign &&
      std::all_of(text.begin() + sign, text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return shown;
  const std::string plain = (negative ? "-" : "") + text.substr(sign);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  // The ends of the range mean "not given".
  if (error != std::errc() || value >= most || value <= least)
    return shown + (negative ? ", greater than " + std::to_string(least)
                             : ", less than " + std::to_string(most));
  text = std::to_string(value);
  return "";
}

std::string number_complaint(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  const bool whole = end == text.c_str() + text.size() && !text.empty() &&
                     std::isspace(static_cast<unsigned char>(text[0])) == 0;
  return whole ? "" : "'" + text + "': expected a number";
}

namespace {

constexpr std::int64_t kNoMost = std::numeric_limits<std::int64_t>::max();

std::string range_text(const std::string& least, const std::string& most, bool limited) {
  return limited ? least + ".." + most : least + " or more";
}

// 1000000, not 1e+06.
std::string limit_text(double limit) {
  const bool whole = std::abs(limit) < 1e15 && limit == std::floor(limit);
  return whole ? std::to_string(static_cast<std::int64_t>(limit)) : number_text(limit);
}

Error not_expected(const std::string& option, const std::string& value,
                   const std::string& expected) {
  return bad_input(option + " " + value + ": expected " + expected);
}

}  // namespace

Expected<void> check_range(const std::string& option, std::int64_t value, std::int64_t least,
                           std::int64_t most, const std::string& more) {
  if (value >= least && value <= most) return {};
  const std::string range = range_text(std::to_string(least), std::to_string(most), most < kNoMost);
  return not_expected(option, std::to_string(value), range + more);
}

Expected<void> check_range(const std::string& option, double value, double least, double most,
                           const std::string& more) {
  if (std::isfinite(value) && value >= least && value <= most) return {};
  const bool limited = most < std::numeric_limits<double>::max();
  return not_expected(option, number_text(value),
                      range_text(limit_text(least), limit_text(most), limited) + more);
}

}  // namespace verb_options

Expected<void> check_above_zero(const std::string& option, double value, double most,
                                const std::string& more) {
  if (std::isfinite(value) && value > 0 && value <= most) return {};
  const bool limited = most < std::numeric_limits<double>::max();
  return verb_options::not_expected(
      option, number_text(value),
      "a number above 0" + (limited ? ", at most " + verb_options::limit_text(most) : "") + more);
}

Expected<void> first_error(std::initializer_list<Expected<void>> checks) {
  const auto* const wrong = std::find_if(checks.begin(), checks.end(),
                                         [](const Expected<void>& check) { return !check.ok(); });
  return wrong == checks.end() ? Expected<void>() : *wrong;
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
  return check_toml_text(read_up_to(file, kLargestFile), path, what);
}

Expected<std::string> check_toml_text(std::string text, const std::string& path,
                                      const std::string& what) {
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
                            const std::set<std::string>& others, Places& places) {
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return bad_input(toml_problem(path, text, error.source().begin.line, error.description()));
  }
  std::map<std::string, FileKey> seen;  // by the option's name
  for (const auto& [written, value] : document) {
    FileKey key{std::string(written.str()), std::string(written.str()),
                path + ":" + std::to_string(value.source().begin.line)};
    if (others.count(key.key) > 0) {
      note_table(key.key, value, path, places);
      continue;
    }
    std::replace(key.name.begin(), key.name.end(), '_', '-');
    const auto [other, first] = seen.emplace(key.name, key);
    if (!first)
      return bad_input(key.place + ": " + key.key + " is the same option as " + other->second.key +
                       " at " + other->second.place + ": give one of them");
    // The message quotes text of the file.
    if (auto applied = apply(app, key, value, places); !applied)
      return bad_input(without_control_characters(applied.error().message));
  }
  return {};
}

Error located(Error error, const Places& places) {
  for (const auto& [name, place] : places)
    for (const std::string& start :
         {name, "unknown " + name, "unknown " + name.substr(name.rfind("--", 0) == 0 ? 2 : 0)})
      for (const char* end : {" ", ":"})
        if (error.message.rfind(start + end, 0) == 0)
          return {error.code, place + ": " + error.message};
  return error;
}

Expected<void> read_config_file(CLI::App& app, const std::string& path) {
  if (path.empty()) return {};
  const auto text = read_toml_file(path, "a TOML file with options");
  if (!text) return text.error();
  Places ignored;
  return read_options(app, *text, path, {}, ignored);
}

}  // namespace grapevine
