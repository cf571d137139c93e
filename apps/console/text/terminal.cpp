#include "apps/console/text/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "messages/text/lower_case.hpp"

namespace grapevine {
namespace {

constexpr int kMinColumns = 20;  // below this a window size is not to be believed

}  // namespace

TerminalStyle terminal_style(bool terminal, const std::function<const char*(const char*)>& lookup) {
  const auto get = [&](const char* name) {
    const char* value = lookup(name);
    return std::string(value == nullptr ? "" : value);
  };
  TerminalStyle style;
  const std::string term = get("TERM");
  style.redraw = terminal && !term.empty() && term != "dumb";
  style.color = style.redraw && get("NO_COLOR").empty();
  // The first of the three that is set decides (POSIX).
  std::string locale = get("LC_ALL");
  if (locale.empty()) locale = get("LC_CTYPE");
  if (locale.empty()) locale = get("LANG");
  locale = lower_case(std::move(locale));
  style.unicode =
      locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return style;
}

TerminalStyle detect_terminal(int descriptor) {
  TerminalStyle style = terminal_style(
      isatty(descriptor) == 1, [](const char* name) { return std::getenv(name); });  // NOLINT
  style.columns = [descriptor] {
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= kMinColumns) {
      return static_cast<int>(size.ws_col);
    }
    return 80;
  };
  return style;
}

}  // namespace grapevine
