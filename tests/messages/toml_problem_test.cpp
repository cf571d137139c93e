#include "messages/text/toml_problem.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <toml++/toml.h>

namespace grapevine {
namespace toml_problem_test {

// What a user reads of `text`; empty: it is TOML.
std::string message_of(const std::string& text) {
  try {
    static_cast<void>(toml::parse(text));
  } catch (const toml::parse_error& error) {
    return toml_problem("job.toml", text, error.source().begin.line, error.description());
  }
  return {};
}

TEST(TomlProblem, SaysWhatIsWrongAndWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"algorithm = sgp\n",
       "job.toml:1: sgp is neither a number, nor true or false, nor text in quotes: write "
       "algorithm = \"TEXT\""},
      {"seed = 1\nlr =   # none\n", "job.toml:2: the value of lr is missing: write lr = VALUE"},
      {"lr =", "job.toml:1: the value of lr is missing: write lr = VALUE"},
      {"lr 0.1\n", "job.toml:1: a key of one word and '=' are missing: write KEY = VALUE"},
      {"learning rate = 1\n", "job.toml:1: a key of one word and '=' are missing"},
      {"lr = 0,1\n", "job.toml:1: 0,1 is more than one value: write one lr = VALUE"},
      {"lr = 1\r\nlr = 2\r\n", "job.toml:2: lr is given twice: remove one of the two"},
      {"[wiring\n", "job.toml:1: a table's name is not closed: write [NAME]"},
      {"out = \"runs\n", "job.toml:1: a text is not closed: end it with the quote"},
      {"out = 'runs\n", "job.toml:1: a text is not closed: end it with the quote"},
      {"out = \"C:\\runs\\query\"\n", "job.toml:1: a backslash between double quotes"},
      {"{\"lr\": 0.1}\n", "job.toml:1: neither a key, a [table], nor a # comment"},
      {"lr = .1\n", "job.toml:1: .1 is no number of TOML: write it as 0.1"},
      {"seed = 01\n", "job.toml:1: 01 is no number of TOML: write digits"},
      {"nesterov = true1\n", "job.toml:1: true1 is neither true nor false"},
      {"lr = [1, 2\n", "a list is not complete: write [VALUE, VALUE]"},
      {"wiring = { peers = 1,\n}\n", "job.toml:1: a table in braces is not complete"},
      {"\xff\xfe\n", "job.toml:1: the file is not UTF-8 text"},
      {"date = 2020-13-01\n", "job.toml:1: no TOML (Error while parsing date"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(message_of(text).find(expected), std::string::npos) << text << "\n"
                                                                  << message_of(text) << "\n"
                                                                  << expected;
}

// Whatever the file holds: the message is one line with the place, of bounded length. Nearly every
// error has words of its own; another one has the parser's phrase, in brackets.
TEST(TomlProblem, IsOneLineForAnyText) {
  const std::string pieces[] = {"lr",  "=",  " ",  "\n", "\"",   "'",    "[", "]",
                                "{",   "}",  ",",  "#",  "\x1b", "\xff", ".", "0",
                                "1e9", "\t", "\r", "\\", "KEY",  "VALUE"};
  constexpr std::size_t kPieces = sizeof(pieces) / sizeof(pieces[0]);
  constexpr std::size_t kLongest = 400;
  std::uint64_t state = 20260101;  // the only seed
  int with_own_words = 0, with_phrase = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      text += pieces[(state >> 33U) % kPieces];
    }
    const std::string message = message_of(text);
    if (message.empty()) continue;
    EXPECT_EQ(message.rfind("job.toml:", 0), 0U) << text << "\n" << message;
    EXPECT_LT(message.size(), kLongest) << text << "\n" << message;
    EXPECT_NE(message.find(": ", message.find(": ") + 1), std::string::npos) << message;
    const bool has_phrase = message.find("while parsing") != std::string::npos;
    EXPECT_EQ(has_phrase, message.find(": no TOML (") != std::string::npos) << message;
    ++(has_phrase ? with_phrase : with_own_words);
    for (const char c : message) EXPECT_TRUE(static_cast<unsigned char>(c) >= ' ') << text;
  }
  EXPECT_GT(with_own_words, 4000) << "few texts have errors: little was tested";
  EXPECT_LT(with_phrase, with_own_words / 20) << "most errors need words of their own";
}

}  // namespace toml_problem_test
}  // namespace grapevine
