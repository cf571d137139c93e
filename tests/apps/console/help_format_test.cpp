#include "apps/console/help_format.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "apps/verbs.hpp"

namespace grapevine {
namespace help_format_test {

std::string without_blanks(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }),
             text.end());
  return text;
}

// In terminals of any width, the same words; at most 100 columns are used. Usage and description of
// a verb, and the names of options, are lines of their own, which need up to 80; the texts behind
// begin in column kTexts.
TEST(HelpFormat, FitsTheTerminal) {
  constexpr std::size_t kTexts = 30;
  for (const CommandEntry& entry : verbs()) {
    std::string widest;
    for (const int columns : {200, 100, 80, 60, 20}) {
      CLI::App app(entry.description, "grapevine " + entry.name);
      const auto command = entry.make();
      format_help(app);
      command->declare(app);
      fit_help(app, columns);
      const std::string help = help_of_all(app);
      const auto limit = static_cast<std::size_t>(std::clamp(columns, 60, 100));
      std::istringstream lines(help);
      for (std::string line; std::getline(lines, line);) {
        const auto characters = std::count_if(line.begin(), line.end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not those within a character
        });
        const std::size_t begin = line.find_first_not_of(' ');
        const bool one_word = line.find(' ', begin) == std::string::npos;
        const bool of_its_own = columns < 80 && begin < kTexts;
        EXPECT_TRUE(static_cast<std::size_t>(characters) <= limit || one_word || of_its_own)
            << entry.name << ", " << columns << " columns: " << line;
      }
      if (widest.empty()) widest = help;
      EXPECT_EQ(without_blanks(help), without_blanks(widest)) << entry.name << ", " << columns;
    }
  }
}

}  // namespace help_format_test
}  // namespace grapevine
