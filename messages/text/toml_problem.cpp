#include "messages/text/toml_problem.hpp"

#include <algorithm>

#include "messages/text/control_characters.hpp"

namespace grapevine {
namespace {

// The first row counts whose two texts are in the parser's description.
struct Problem {
  const char* where;
  const char* what;
  const char* message;  // KEY and VALUE are those of the line
};

constexpr Problem kProblems[] = {
    {"utf-8", "", "the file is not UTF-8 text: give a TOML file"},
    {"", "could not determine value type",
     "VALUE is neither a number, nor true or false, nor text in quotes: write KEY = \"TEXT\""},
    {"", "cannot redefine", "KEY is given twice: remove one of the two"},
    {"table header", "", "a table's name is not closed: write [NAME] or [[NAME]] in one line"},
    {"inline table", "",
     "a table in braces is not complete: close it in its line, or write [NAME] and a line for each "
     "key"},
    {"array", "", "a list is not complete: write [VALUE, VALUE]"},
    {"root table", "", "neither a key, a [table], nor a # comment: write KEY = VALUE"},
    {"", "expected '='", "a key of one word and '=' are missing: write KEY = VALUE"},
    {"", "comment or whitespace",
     "VALUE is more than one value: write one KEY = VALUE in a line, text in quotes, and 0.1 with "
     "a point"},
    {"key-value pair", "", "the value of KEY is missing: write KEY = VALUE"},
    {"", "escape sequence",
     "a backslash between double quotes begins an escape: write 'TEXT' in single quotes"},
    {"string", "", "a text is not closed: end it with the quote with which it begins"},
    {"integer", "",
     "VALUE is no number of TOML: write digits without a 0 in front, of at most 64 bits"},
    {"floating-point", "", "VALUE is no number of TOML: write it as 0.1 or 1e-4"},
    {"boolean", "", "VALUE is neither true nor false: write text in quotes"},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// As it is in the file, or `otherwise`: long texts and other than ASCII are not quoted.
std::string quoted(std::string_view text, const std::string& otherwise) {
  constexpr std::size_t kLongest = 60;
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return c > 0 && !is_control_character(c); });
  return text.empty() || text.size() > kLongest || !plain ? otherwise : std::string(text);
}

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (std::size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

// With the key and the value of the line. The remedy names the key as well, and no value.
std::string with_names(const std::string& message, std::string_view line) {
  const std::size_t equals = line.find('=');
  std::string_view value = equals == std::string_view::npos ? "" : line.substr(equals + 1);
  value = without_blanks(value.substr(0, value.find('#')));
  const std::string key = quoted(without_blanks(line.substr(0, equals)), "KEY");
  const std::size_t remedy = message.find(": write");
  const std::string before = message.substr(0, remedy);
  const std::string after = remedy == std::string::npos ? "" : message.substr(remedy);
  const bool one_word = equals != std::string_view::npos && !has(key, " ");
  return replaced(replaced(before, "KEY", key == "KEY" ? "the key" : key), "VALUE",
                  quoted(value, "the value")) +
         (one_word ? replaced(after, "KEY", key) : after);
}

}  // namespace

std::string toml_problem(const std::string& path, std::string_view text, std::size_t line,
                         std::string_view description) {
  const std::string place = path + ":" + std::to_string(line) + ": ";
  for (const Problem& problem : kProblems)
    if (has(description, problem.where) && has(description, problem.what))
      return without_control_characters(place + with_names(problem.message, line_of(text, line)));
  constexpr std::size_t kLongest = 200;
  return without_control_characters(place) + "no TOML (" +
         one_line(std::string(description), kLongest, '?') +
         "): write KEY = VALUE, and text in quotes";
}

}  // namespace grapevine
