// The files that `grapevine trace` writes: checked before the trace is read.
#pragma once
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

// Makes the missing folders of `path` and tests that it can be written; what has the name stays.
// `option`: that gave the path, for messages. `run`: whose trace is read; its own files are not
// to be replaced, and other files only where this verb has written them.
// Errors (bad_input): the path cannot be written, or names a file of the run or of somebody else.
Expected<void> prepare_output_file(const std::string& option, const std::string& path,
                                   const std::string& run);

// --html FILE. Errors (bad_input): the name does not end in .html or .htm.
Expected<void> check_page_path(const std::string& path);

}  // namespace grapevine
