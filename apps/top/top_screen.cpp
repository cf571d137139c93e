#include "apps/top/top_screen.hpp"

#define NCURSES_NOMACROS
#include <curses.h>

#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace grapevine {
namespace {

constexpr int kKeyTimeoutMs = 100;

chtype attributes_of(FrameLine::Style style) {
  switch (style) {
    case FrameLine::Style::title:
      return A_BOLD;
    case FrameLine::Style::heading:
      return A_REVERSE;
    case FrameLine::Style::alarm:
      return A_BOLD | (::has_colors() ? static_cast<chtype>(COLOR_PAIR(1)) : A_NORMAL);
    case FrameLine::Style::plain:
      break;
  }
  return A_NORMAL;
}

}  // namespace

Expected<TopScreen> TopScreen::open() {
  const char* name = std::getenv("TERM");
  const std::string hint = "; 'top --once' needs none";
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    return bad_input("top: standard input and output are not a terminal" + hint);
  std::setlocale(LC_CTYPE, "");
  if (::newterm(nullptr, stdout, stdin) == nullptr)
    return bad_input("top: the terminal '" + std::string(name != nullptr ? name : "") +
                     "' of TERM is not known" + hint);
  std::signal(SIGQUIT, SIG_IGN);  // it would leave the terminal as it is
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, TRUE);
  ::curs_set(0);
  ::wtimeout(stdscr, kKeyTimeoutMs);
  if (::has_colors()) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(1, COLOR_RED, -1);
  }
  return TopScreen();
}

TopScreen::TopScreen(TopScreen&& other) noexcept : open_(std::exchange(other.open_, false)) {}

TopScreen::~TopScreen() {
  if (!open_) return;
  ::endwin();
  std::signal(SIGQUIT, SIG_DFL);
}

int TopScreen::rows() const { return getmaxy(stdscr); }
int TopScreen::columns() const { return getmaxx(stdscr); }

void TopScreen::show(const std::vector<FrameLine>& frame) {
  ::werase(stdscr);
  int row = 0;
  for (const FrameLine& line : frame) {
    const chtype attributes = attributes_of(line.style);
    ::wattrset(stdscr, static_cast<int>(attributes));
    ::wmove(stdscr, row++, 0);
    ::waddnstr(stdscr, line.text.c_str(), -1);
  }
  ::wattrset(stdscr, A_NORMAL);
  ::wrefresh(stdscr);
}

int TopScreen::wait_for_key() {
  const int key = ::wgetch(stdscr);
  return key == ERR || key == KEY_RESIZE ? kNoKey : key;
}

}  // namespace grapevine
