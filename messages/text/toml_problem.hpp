// The errors of a TOML parser in the words of this program.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace grapevine {

// "job.toml:3: the value of lr is missing: write lr = VALUE": one line for users. `text` is the
// whole file, `line` the line at which the parser stopped, from 1, `description` the parser's
// (toml++'s) text. A description that is not known is quoted.
std::string toml_problem(const std::string& path, std::string_view text, std::size_t line,
                         std::string_view description);

}  // namespace grapevine
