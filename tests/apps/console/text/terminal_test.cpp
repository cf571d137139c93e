#include "apps/console/text/terminal.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace grapevine {
namespace terminal_test {

TerminalStyle style_of(bool terminal, std::map<std::string, std::string> environment) {
  return terminal_style(terminal, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(TerminalTest, StyleFollowsTheEnvironment) {
  const TerminalStyle full = style_of(true, {{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}});
  EXPECT_TRUE(full.redraw && full.color && full.unicode);
  EXPECT_FALSE(style_of(false, {{"TERM", "xterm"}}).redraw);
  EXPECT_FALSE(style_of(false, {{"TERM", "xterm"}}).color);
  EXPECT_FALSE(style_of(true, {{"TERM", "dumb"}}).redraw);
  EXPECT_FALSE(style_of(true, {}).redraw);
  const TerminalStyle plain = style_of(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_TRUE(plain.redraw);
  EXPECT_FALSE(plain.color);
  EXPECT_TRUE(style_of(true, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).color);
  EXPECT_FALSE(style_of(true, {{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}).unicode);
  EXPECT_TRUE(style_of(true, {{"LC_CTYPE", "C.utf8"}}).unicode);
}

TEST(TerminalTest, AFileIsNoTerminal) {
  const TerminalStyle style = detect_terminal(-1);
  EXPECT_FALSE(style.redraw);
  EXPECT_EQ(style.columns(), 80);
}

}  // namespace terminal_test
}  // namespace grapevine
