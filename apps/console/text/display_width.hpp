// The width of text on a terminal, and lines that fit. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace grapevine {

// Columns that UTF-8 text takes on a terminal: combining marks 0, East Asian wide characters and
// emoji 2, anything else (also a byte that is no UTF-8) 1.
int display_width(std::string_view text);
// The longest prefix of whole characters that takes at most `columns`.
std::string truncate_to_width(std::string_view text, int columns);
// Lines of at most `columns`, as far as words are not longer; all but the first begin with
// `indent`. At least one.
std::vector<std::string> wrapped_lines(const std::string& text, int columns,
                                       const std::string& indent);

}  // namespace grapevine
